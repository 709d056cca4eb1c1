"""A lease that this process holds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import psycopg

from pyfence import _writing
from pyfence._connect import Source
from pyfence._held import HeldLease
from pyfence.types import Seconds, ttl_seconds


class Lease(HeldLease[Source]):
    """A lease: made by `Fence.acquire` and `Fence.lease`, used by any number of threads.

    It holds no connection while it is idle. It cannot be pickled, and refuses to work in a child process.
    """

    @property
    def lost(self) -> threading.Event:
        """Set, for good, when this process has to assume that it does not hold the lease any more.

        At the latest when the ttl has passed since the last successful request was sent. Advice for stopping early:
        only the database decides whether a write is accepted.
        """
        return self._state.lost

    def renew(self, ttl: Seconds | None = None) -> datetime:
        """Extends the lease and gives its new expiry. Not needed inside `Fence.lease`, which renews by itself.

        Args:
            ttl: from now, at most a day. None: the ttl of the grant.

        Raises:
            StaleToken: superseded or revoked.
            LeaseExpired: too late, even if nobody has taken it over. It is not revived.
            UnknownLease: no such lease.
            LeaseLost: it was given back, or is another process's.
            OutcomeUnknown: no answer in time; the lease lasts at least until its present deadline.
        """
        return self._renew(None if ttl is None else ttl_seconds(ttl), self._backend.timeout)

    def release(self) -> bool:
        """Gives the lease back. True: it was still this holder's. False: it was not, or was given back before.

        Touches nobody else's lease. Where the call fails, the lease is not renewed any more and ends with its ttl;
        calling again tries again.

        Raises:
            LeaseLost: in a child process: the lease is its parent's.
            OutcomeUnknown, psycopg.Error: the database could not be asked.
        """
        return self._release(self._backend.timeout)

    def transaction(
        self, *, isolation: _writing.Isolation | None = None, sequence: int | None = None
    ) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A block with a psycopg connection in a transaction, with this lease presented.

        Committed at the end of the block, rolled back if it raises. The connection comes from the `Fence`'s source.
        Refusals by the database leave the block as pyfence's exceptions. A block that leaves its transaction idle for
        longer than the ttl is ended by the database, so that a frozen process cannot keep a successor out.

        Args:
            isolation: 'READ COMMITTED', 'REPEATABLE READ' or 'SERIALIZABLE'; None: the connection's default.
            sequence: number of this write, for tables protected with ``p_writes => 'sequenced'``.

        Raises:
            StaleToken, UnknownLease: at once, where the lease is not this holder's any more.
            LeaseLost: it was given back, or is another process's.
        """
        self._state.raise_if_over()
        return _writing.transaction(self._backend, [self.claim.with_sequence(sequence)], isolation=isolation)

    def fenced_update(
        self,
        table: object,
        key: Mapping[str, object],
        changes: Mapping[str, object],
        *,
        sequence: int | None = None,
    ) -> int:
        """Changes one row of a protected table under this lease: one round trip, committed. 1, or 0: no such row.

        See `pyfence.fenced_update` for the arguments and errors.

        Raises:
            OutcomeUnknown: no answer in time: the row may have been changed.
            LeaseLost: the lease was given back, or is another process's.
        """
        self._state.raise_if_over()
        claim = self.claim.with_sequence(sequence)
        return _writing.fenced_update_alone(self._backend, table, key, changes, claim)
