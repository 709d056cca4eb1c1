"""Leases and fencing tokens that PostgreSQL itself enforces.

>>> import pyfence
>>> fence = pyfence.Fence("postgresql://...")
>>> with fence.lease("report:1", ttl=30) as lease:
...     with lease.transaction() as conn:
...         conn.execute("update report set body = 'new' where id = 1")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyfence._awriting import afenced_update as afenced_update
    from pyfence._awriting import apresent as apresent
    from pyfence._naming import resource as resource
    from pyfence._writing import fenced_update as fenced_update
    from pyfence._writing import present as present
    from pyfence.aclient import AsyncFence as AsyncFence
    from pyfence.alease import AsyncLease as AsyncLease
    from pyfence.client import Fence as Fence
    from pyfence.errors import AuthorityQuarantined as AuthorityQuarantined
    from pyfence.errors import BadArgument as BadArgument
    from pyfence.errors import ClaimMissing as ClaimMissing
    from pyfence.errors import DuplicateWrite as DuplicateWrite
    from pyfence.errors import FenceError as FenceError
    from pyfence.errors import GuardBroken as GuardBroken
    from pyfence.errors import LeaseExpired as LeaseExpired
    from pyfence.errors import LeaseHeld as LeaseHeld
    from pyfence.errors import LeaseLost as LeaseLost
    from pyfence.errors import OutcomeUnknown as OutcomeUnknown
    from pyfence.errors import SchemaMismatch as SchemaMismatch
    from pyfence.errors import SequenceError as SequenceError
    from pyfence.errors import StaleToken as StaleToken
    from pyfence.errors import UnknownLease as UnknownLease
    from pyfence.errors import WrongResource as WrongResource
    from pyfence.lease import Lease as Lease
    from pyfence.types import Claim as Claim

_ERRORS = (
    "AuthorityQuarantined",
    "BadArgument",
    "ClaimMissing",
    "DuplicateWrite",
    "FenceError",
    "GuardBroken",
    "LeaseExpired",
    "LeaseHeld",
    "LeaseLost",
    "OutcomeUnknown",
    "SchemaMismatch",
    "SequenceError",
    "StaleToken",
    "UnknownLease",
    "WrongResource",
)

# Public name -> where it is. Loaded when first asked for: `import pyfence` loads no driver.
_WHERE = {
    **dict.fromkeys(_ERRORS, "pyfence.errors"),
    "AsyncFence": "pyfence.aclient",
    "AsyncLease": "pyfence.alease",
    "Claim": "pyfence.types",
    "Fence": "pyfence.client",
    "Lease": "pyfence.lease",
    "afenced_update": "pyfence._awriting",
    "apresent": "pyfence._awriting",
    "fenced_update": "pyfence._writing",
    "present": "pyfence._writing",
    "resource": "pyfence._naming",
}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'pyfence' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
