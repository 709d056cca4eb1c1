"""Claims in a connection's start-up options, for programs that cannot call `present`. No I/O.

The setting ``fence.claim`` holds claims as ``<resource in hex>:<token>:<secret>[:<sequence>]``, joined by commas: no
blank, quote or backslash, so that nothing has to be escaped in PGOPTIONS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyfence.errors import BadArgument
from pyfence.types import Claim

_OPTION = re.compile(r"(?:^|(?<=\s))(?:-c\s*|--)fence\.claim=(\S*)(?:\s+|$)")


class Secretive(str):
    """A text that holds a secret: like any other, but its repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{_OPTION.sub('-c fence.claim=... ', self).rstrip()}>"


def _item(claim: Claim) -> str:
    if not (claim.secret.isascii() and claim.secret.isalnum()):
        raise BadArgument("not a secret that the database has made", resource=claim.resource)
    sequence = "" if claim.sequence is None else f":{claim.sequence}"
    return f"{claim.resource.encode().hex()}:{claim.token}:{claim.secret}{sequence}"


def libpq_options(claims: Sequence[Claim]) -> Secretive:
    """What to append to a connection's `options`, or to PGOPTIONS."""
    return Secretive(f"-c fence.claim={','.join(map(_item, claims))}")


def with_claims(options: str, claims: Sequence[Claim]) -> Secretive:
    """`options` with `claims` in them. Claims on other resources that are there stay: the last setting alone counts."""
    items = {item.partition(":")[0]: item for found in _OPTION.findall(options) for item in found.split(",") if item}
    items.update((claim.resource.encode().hex(), _item(claim)) for claim in claims)
    kept = _OPTION.sub("", options).rstrip()
    return Secretive(f"{kept} -c fence.claim={','.join(items.values())}".lstrip())


def environ(claims: Sequence[Claim], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a child process's libpq connections write under `claims`; the first one is named.

    PGOPTIONS (what `environment` has, and the claims), PYFENCE_RESOURCE, PYFENCE_TOKEN.
    """
    first = claims[0]
    return {
        "PGOPTIONS": with_claims(environment.get("PGOPTIONS", ""), claims),
        "PYFENCE_RESOURCE": first.resource,
        "PYFENCE_TOKEN": str(first.token),
    }
