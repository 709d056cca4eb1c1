"""The synchronous client."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg

from pyfence import _statements, _writing
from pyfence._backend import Backend
from pyfence._clock import Waiting, now
from pyfence._connect import source_of
from pyfence._renewal import Renewer
from pyfence._state import LeaseState
from pyfence.errors import FenceError, OutcomeUnknown
from pyfence.lease import Lease
from pyfence.types import Claim, Holder, Seconds, checked_text, default_owner, seconds, ttl_seconds

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Engine

log = logging.getLogger("pyfence")


class Fence:
    """Leases and fenced writes over one database.

    Over a URL it opens connections as it needs them; over a `psycopg_pool.ConnectionPool` or a SQLAlchemy `Engine`
    the application's transactions use that, and only acquire, renew and release have connections of their own beside
    it: at most four, plus one for renewals, so that a lease's heartbeat never waits for the work. A lease holds no
    connection while it is idle. Usable from any number of threads, and in a child process, where it starts afresh.

    Args:
        source: a ``postgresql://`` (or ``postgresql+psycopg://``) URL or libpq conninfo, a pool, or an engine.
        timeout: how long one call to the database may take before it is given up. A waiting acquire makes many.

    Raises:
        BadArgument: (a ValueError) not a source, or a bad timeout.
    """

    def __init__(self, source: str | ConnectionPool[Any] | Engine, *, timeout: Seconds = 10.0) -> None:
        self._source = source
        self._timeout = seconds(timeout, name="timeout")
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._backend = Backend.over(source_of(self._source), timeout=self._timeout)
        self._renewer = Renewer(self._backend.heartbeats)
        self._closing = threading.Event()

    def _after_fork(self) -> None:
        # In a child process the connections, the threads and the leases are the parent's: start afresh, close nothing.
        if self._pid != os.getpid() and not self._closed:
            self._start()

    def acquire(self, resource: str, ttl: Seconds = 30, owner: str | None = None, wait: Seconds | None = 0) -> Lease:
        """Takes the lease on `resource`. It does not renew itself: see `lease`.

        Not re-entrant: while it is held, also by this very process, it is held.

        Args:
            resource: 1 to 1024 bytes; see `pyfence.resource` for names made from keys.
            ttl: how long it lasts unless renewed; above zero, at most a day.
            owner: a label for people; None: 'host:pid'.
            wait: how long to wait for it; 0: not at all, None: for ever.

        Raises:
            LeaseHeld: somebody else has it, and the wait is over. Says who, until when, and when to ask again.
            BadArgument: (a ValueError) before anything is sent, or from the database.
            AuthorityQuarantined: an operator has to confirm the database's lineage first.
            OutcomeUnknown: no answer in time; at worst nobody has the lease until its ttl is over.
            psycopg.Error: the database could not be asked. A wait that has had one answer goes on asking instead.
        """
        self._after_fork()
        checked_text(resource, name="resource")
        length = ttl_seconds(ttl)
        label = default_owner() if owner is None else checked_text(owner, name="owner")
        waiting = Waiting(None if wait is None else seconds(wait, name="wait", maximum=None, zero=True))
        holder: Holder | None = None
        while True:
            try:
                answer = self._ask(resource, length, label)
            except (psycopg.OperationalError, OutcomeUnknown):
                pause = waiting.pause(None) if holder is not None else None
                if pause is None:
                    raise
            else:
                if isinstance(answer, Lease):
                    return answer
                holder = answer
                pause = waiting.pause(holder.retry_in)
                if pause is None:
                    raise holder.as_error()
            if self._closing.wait(pause):
                raise FenceError("the Fence was closed while waiting for a lease", resource=resource)

    def _ask(self, resource: str, ttl: float, owner: str) -> Lease | Holder:
        sent = now()
        rows = self._backend.calls.run(
            _statements.acquire(resource, ttl, owner), timeout=self._backend.timeout, resource=resource
        )
        answer = _statements.granted(rows[0])
        if isinstance(answer, Holder):
            return answer
        state = LeaseState(answer, ttl=ttl, sent=sent)
        state.watch(self._backend.timekeeper)
        return Lease(self._backend, state, forget=self._renewer.remove)

    @contextmanager
    def lease(
        self,
        resource: str,
        ttl: Seconds = 30,
        owner: str | None = None,
        wait: Seconds | None = 0,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Iterator[Lease]:
        """Holds the lease on `resource` for the length of a block: renews it by itself and gives it back at the end.

        Renewals run in a thread on a connection of their own, at a third of the ttl, and are tried again until the
        ttl has passed since the last success was sent. When the lease is lost, `Lease.lost` is set and `on_lost` is
        called, once, in a thread of its own; the block is not interrupted.

        Args:
            resource, ttl, owner, wait: as for `acquire`.
            on_lost: called with the lease. Its exceptions are logged.

        Raises:
            LeaseLost: at the end of a block that raised nothing itself, if the lease was lost meanwhile: the block
                did not hold it throughout. A block's own exception is the one raised, with a note of the loss.
            LeaseHeld and others: as `acquire`.
        """
        lease = self.acquire(resource, ttl, owner, wait)
        state = lease._state
        if on_lost is not None:
            state.on_lost = lambda: on_lost(lease)
        try:
            self._renewer.add(state)
            yield lease
        except BaseException as exc:
            self._leave(lease)
            if state.reason is not None and state.reason != "released":
                exc.add_note(f"pyfence: {state.loss(state.reason).message}")
            raise
        self._leave(lease)
        if state.reason is not None and state.reason != "released":
            state.fail(state.reason)

    def _leave(self, lease: Lease) -> None:
        """Gives a lease back at the end of its block; a failure of that is no reason to fail the block."""
        state = lease._state
        if state.forked or sys.is_finalizing():  # a block that nobody ends: its threads and locks are gone already
            return
        self._renewer.remove(state)
        if state.reason is not None:
            return
        try:
            # Once the ttl is over there is nothing left to give back.
            lease._release(min(self._backend.timeout, max(0.1, state.deadline - now())))
        except Exception as exc:
            log.warning("lease %r was not released and ends with its ttl: %s", lease.resource, exc)

    def transaction(
        self, *leases: Lease | Claim, isolation: _writing.Isolation | None = None
    ) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A block with a psycopg connection in a transaction, with all `leases` presented in the order of their names.

        As `Lease.transaction`, for work that needs several leases; for sequences pass ``lease.claim.with_sequence(n)``.
        """
        self._after_fork()
        for lease in leases:
            if isinstance(lease, Lease):
                lease._state.raise_if_over()
        return _writing.transaction(self._backend, _writing.claims_of(leases), isolation=isolation)

    def close(self) -> None:
        """Ends renewals and waiting acquires and closes the connections this Fence has opened, nobody else's.

        Leases that are still held are not given back: they end with their ttl.
        """
        self._after_fork()
        self._closed = True
        self._closing.set()
        self._renewer.close()
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
