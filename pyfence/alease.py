"""A lease that this process holds, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Any, Literal

import psycopg

from pyfence import _awriting
from pyfence._aconnect import AsyncSource
from pyfence._backend import Backend
from pyfence._held import HeldLease
from pyfence._state import LeaseState
from pyfence._threads import Threads
from pyfence._writing import Isolation
from pyfence.types import Seconds, ttl_seconds


class _Lost(asyncio.Event):
    """Set from any thread. Tells the truth to code that blocks the event loop, too."""

    def __init__(self, state: LeaseState) -> None:
        super().__init__()
        self._state = state
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self.set)

        state.wake = wake
        if state.lost.is_set():  # before anybody was there to be told
            self.set()

    def is_set(self) -> bool:
        return self._state.lost.is_set()

    async def wait(self) -> Literal[True]:
        return True if self.is_set() else await super().wait()


class AsyncLease(HeldLease[AsyncSource]):
    """A lease: made by `AsyncFence.acquire` and `AsyncFence.lease`, used by any number of tasks.

    It holds no connection while it is idle. It cannot be pickled, and refuses to work in a child process. `lost` can be
    waited for in the event loop that acquired it.
    """

    def __init__(
        self,
        backend: Backend[AsyncSource],
        state: LeaseState,
        *,
        forget: Callable[[LeaseState], None],
        threads: Threads,
    ) -> None:
        super().__init__(backend, state, forget=forget)
        self._threads = threads
        self._lost = _Lost(state)

    @property
    def lost(self) -> asyncio.Event:
        """Set, for good, when this process has to assume that it does not hold the lease any more.

        At the latest when the ttl has passed since the last successful request was sent; ``lost.is_set()`` says so at
        that moment even if the event loop is blocked. Advice for stopping early: only the database decides whether a
        write is accepted.
        """
        return self._lost

    async def renew(self, ttl: Seconds | None = None) -> datetime:
        """Extends the lease and gives its new expiry. Not needed inside `AsyncFence.lease`, which renews by itself.

        Args:
            ttl: from now, at most a day. None: the ttl of the grant.

        Raises:
            StaleToken, LeaseExpired, UnknownLease, LeaseLost, OutcomeUnknown: as `Lease.renew`.
        """
        length = None if ttl is None else ttl_seconds(ttl)
        self._state.raise_if_over()
        return await self._threads.run(lambda left: self._renew(length, left), timeout=self._backend.timeout)

    async def release(self) -> bool:
        """Gives the lease back. True: it was still this holder's. False: it was not, or was given back before.

        A release whose caller is cancelled is finished all the same.

        Raises:
            LeaseLost, OutcomeUnknown, psycopg.Error: as `Lease.release`.
        """
        return await self._give_back(self._backend.timeout)

    async def _give_back(self, timeout: float) -> bool:
        self._state.raise_if_forked()
        self._forget(self._state)  # at once: no renewal begins after the caller has asked
        return await self._threads.run(self._release, timeout=timeout, anyway=True)

    def transaction(
        self, *, isolation: Isolation | None = None, sequence: int | None = None
    ) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """A block with a psycopg `AsyncConnection` in a transaction, with this lease presented.

        Committed at the end of the block, rolled back if it raises or its task is cancelled. See `Lease.transaction`.

        Raises:
            StaleToken, UnknownLease: at once, where the lease is not this holder's any more.
            LeaseLost: it was given back, or is another process's.
        """
        self._state.raise_if_over()
        return _awriting.transaction(self._backend, [self.claim.with_sequence(sequence)], isolation=isolation)

    async def fenced_update(
        self,
        table: object,
        key: Mapping[str, object],
        changes: Mapping[str, object],
        *,
        sequence: int | None = None,
    ) -> int:
        """Changes one row of a protected table under this lease: one round trip, committed. 1, or 0: no such row.

        See `pyfence.fenced_update` for the arguments and errors. If the task is cancelled meanwhile, the row may or may
        not have been changed.

        Raises:
            OutcomeUnknown: no answer in time: the row may have been changed.
            LeaseLost: the lease was given back, or is another process's.
        """
        self._state.raise_if_over()
        claim = self.claim.with_sequence(sequence)
        return await _awriting.fenced_update_alone(self._backend, table, key, changes, claim)
