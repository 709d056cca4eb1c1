"""What every held lease is, whoever waits for its calls: `Lease` and `AsyncLease` add only how to wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic

from pyfence import _startup, _statements
from pyfence._backend import Backend, S
from pyfence._clock import now
from pyfence._state import LOST_BY_CODE, LeaseState
from pyfence.errors import FenceError
from pyfence.types import Claim


class HeldLease(Generic[S]):
    """The common half of `Lease` and `AsyncLease`. Nothing public here waits for the database."""

    def __init__(self, backend: Backend[S], state: LeaseState, *, forget: Callable[[LeaseState], None]) -> None:
        self._backend = backend
        self._state = state
        self._forget = forget

    @property
    def resource(self) -> str:
        """The name of what is leased."""
        return self._state.resource

    @property
    def token(self) -> int:
        """The fencing token: larger than every earlier one of this resource."""
        return self._state.token

    @property
    def owner(self) -> str:
        """The label given to `acquire`."""
        return self._state.owner

    @property
    def expires_at(self) -> datetime:
        """The expiry that the database last gave; aware. Not for comparing with the clock of this host."""
        return self._state.expires_at

    @property
    def claim(self) -> Claim:
        """What a transaction presents to write. Its secret is in no text form of it.

        Raises:
            LeaseLost: in a child process: the lease is its parent's.
        """
        return self._state.claim

    def libpq_options(self, *others: HeldLease[Any] | Claim) -> str:
        """Start-up options under which a connection's writes carry this claim, and those of `others`.

        For programs and drivers that cannot call `present`: append them to a connection's `options`, or to PGOPTIONS.
        The claim belongs to that connection, for all its transactions, and is checked on every statement. It must not
        go through a pooler that shares connections. The text holds the secret; its repr does not show it.

        Raises:
            LeaseLost: the lease was given back, or is another process's.
        """
        return _startup.libpq_options(self._exported(others))

    def environ(self, *others: HeldLease[Any] | Claim) -> dict[str, str]:
        """Variables for a child process whose libpq connections are to write under this lease, and under `others`.

        PGOPTIONS: this process's own, with the claims appended; PYFENCE_RESOURCE and PYFENCE_TOKEN: this lease's, for
        logs and for calls elsewhere. ``subprocess.run(command, env={**os.environ, **lease.environ()})``. Writes of a
        child that outlives the lease are refused; ``pyfence run`` sees to it that none does.

        Raises:
            LeaseLost: the lease was given back, or is another process's.
        """
        return _startup.environ(self._exported(others), os.environ)

    def _exported(self, others: tuple[HeldLease[Any] | Claim, ...]) -> list[Claim]:
        claims = []
        for lease in (self, *others):
            if isinstance(lease, HeldLease):
                lease._state.raise_if_over()
            claims.append(lease if isinstance(lease, Claim) else lease.claim)
        return claims

    def raise_if_lost(self) -> None:
        """Raises `LeaseLost` if `lost` is set or the ttl has passed. Asks nobody: no round trip."""
        self._state.raise_if_lost()

    def _renew(self, ttl: float | None, timeout: float) -> datetime:
        """Renews, blocking. See `Lease.renew`."""
        state = self._state
        state.raise_if_over()
        statement = _statements.renew(state.claim, ttl)
        with state.turn(timeout) as left:
            sent = now()
            try:
                rows = self._backend.calls.run(statement, timeout=left, resource=state.resource)
            except FenceError as exc:
                if exc.sqlstate in LOST_BY_CODE:
                    state.lose(LOST_BY_CODE[exc.sqlstate])
                raise
            expires_at = _statements.expiry(rows[0])
            state.extended(sent=sent, ttl=state.ttl if ttl is None else ttl, expires_at=expires_at)
        return expires_at

    def _release(self, timeout: float) -> bool:
        """Gives the lease back, blocking. See `Lease.release`."""
        state = self._state
        claim = state.claim
        self._forget(state)
        with state.turn(timeout) as left:
            if state.reason == "released":
                return False
            asked_before, state.release_sent = state.release_sent, True
            statement = _statements.release(claim)
            rows = self._backend.calls.run(statement, timeout=left, resource=state.resource)
            held = bool(rows[0][0])
            # Not the holder, and not because an earlier request has done it unheard: somebody else is.
            state.lose("released" if held or asked_before else "superseded")
        return held

    def __repr__(self) -> str:
        standing = f", {self._state.reason}" if self._state.reason else ""
        return f"<{type(self).__name__} {self.resource!r} token={self.token}{standing}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} belongs to the process that acquired it and cannot be pickled")
