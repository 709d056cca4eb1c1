"""One acquire: checked, asked, and asked again while its wait lasts. Shared by the sync and the async client."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from pyfence import _statements, _telemetry
from pyfence._backend import Backend, S
from pyfence._clock import Waiting, now
from pyfence._queue import Place, Queue
from pyfence._state import LeaseState
from pyfence._statements import Statement
from pyfence.errors import FenceError, OutcomeUnknown, SchemaMismatch
from pyfence.types import Holder, Seconds, checked_text, default_owner, seconds, ttl_seconds

TRANSIENT = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction, OutcomeUnknown)
"""Failures that a waiting acquire survives once the database has answered it: of the server and the network."""


_WORTH_LISTENING = 1.0  # seconds of waiting left


class Request:
    """What `acquire` was called with. It does not wait itself: the client does, the way its kind waits.

    One that waits queues up once it has been told that somebody else has the lease, and is then woken when it is its
    turn; `close` ends that.

    Args:
        wake: ends the client's wait, from any thread; returns at once.

    Raises:
        BadArgument: before anything is sent.
    """

    def __init__(
        self, resource: str, ttl: Seconds, owner: str | None, wait: Seconds | None, *, wake: Callable[[], object]
    ) -> None:
        self.resource = checked_text(resource, name="resource")
        self._ttl = ttl_seconds(ttl)
        self._owner = default_owner() if owner is None else checked_text(owner, name="owner")
        self._waiting = Waiting(None if wait is None else seconds(wait, name="wait", maximum=None, zero=True))
        self._waits = self._waiting.left > 0
        self._wake = wake
        self._closing = threading.Lock()
        self._closed = False
        self._queue: Queue | None = None
        self._place: Place | None = None
        self._listener: int | None = None
        self._holder: Holder | None = None

    def ask(self, backend: Backend[S], *, timeout: float | None = None) -> LeaseState | None:
        """Asks, blocking: the lease, or None where somebody else has it. Raises what `Calls.run` raises."""
        deadline = now() + (backend.timeout if timeout is None else timeout)
        state = self._ask(backend, deadline)
        if state is None and self._place is None and self._waiting.left > 0 and self._join(backend.queue):
            state = self._ask(backend, deadline)
        return state

    def _join(self, queue: Queue) -> bool:
        """False where nobody waits any more: an async client's waiting may end while a thread still asks for it."""
        with self._closing:
            if not self._closed:
                self._queue = queue
                self._place = queue.join(self._wake, listen=self._waiting.left > _WORTH_LISTENING)
            return not self._closed

    def _ask(self, backend: Backend[S], deadline: float) -> LeaseState | None:
        sent = now()
        length = max(0.0, deadline - sent)
        rows = backend.calls.run(self._statement(backend), timeout=length, resource=self.resource)
        if not rows:
            raise self._mismatch(backend, length)
        if self._place is not None:
            self._place.ticket = _statements.ticket(rows[0]) or 0
        answer = _statements.granted(rows[0])
        if isinstance(answer, Holder):
            self._holder = answer
            return None
        state = LeaseState(answer, ttl=self._ttl, sent=sent)
        _telemetry.granted(state.resource, state.token)
        state.watch(backend.timekeeper)
        return state

    def _statement(self, backend: Backend[S]) -> Statement:
        if not self._waits:
            return _statements.acquire(self.resource, self._ttl, self._owner)
        if self._place is None:
            return _statements.acquire_in_turn(self.resource, self._ttl, self._owner, ticket=None, listener=None)
        self._listener = backend.queue.listener
        return _statements.acquire_in_turn(
            self.resource, self._ttl, self._owner, ticket=self._place.ticket, listener=self._listener
        )

    def close(self) -> None:
        """Ends the waiting, however it has ended."""
        with self._closing:
            self._closed = True
        if self._queue is not None and self._place is not None:
            self._queue.leave(self._place)

    def _mismatch(self, backend: Backend[S], timeout: float) -> SchemaMismatch:
        """The statement asks for nothing where the schema is older than this client."""
        ((found,),) = backend.calls.run(_statements.SCHEMA_VERSION, timeout=timeout, resource=self.resource)
        return SchemaMismatch(
            f"schema version {found}, and this version of pyfence needs {_statements.NEEDED_SCHEMA} or newer",
            detail="No lease was asked for. Guards go on as they were.",
            hint="Run: pyfence migrate up",
            resource=self.resource,
        )

    def give_back(self, backend: Backend[S], state: LeaseState) -> None:
        """Releases, blocking, a lease that was granted to somebody who has stopped asking meanwhile."""
        state.lose("released")
        left = min(backend.timeout, state.deadline - now())
        if left > 0:
            backend.calls.run(_statements.release(state.claim), timeout=left, resource=self.resource)

    def pause(self) -> float:
        """Seconds until it is worth asking again. Raises LeaseHeld where the wait is over."""
        assert self._holder is not None
        pause = self._waiting.pause(self._holder.retry_in, called=self._listener is not None)
        if pause is None:
            raise self._holder.as_error()
        return pause

    def pause_after(self, failure: Exception) -> float:
        """Seconds until the next attempt after a `TRANSIENT` failure, which is raised where there is to be none."""
        pause = self._waiting.pause(None) if self._holder is not None else None
        if pause is None:
            raise failure
        return pause

    def closed(self) -> FenceError:
        return FenceError("the Fence was closed while waiting for a lease", resource=self.resource)
