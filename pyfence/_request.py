"""One acquire: checked, asked, and asked again while its wait lasts. Shared by the sync and the async client."""

from __future__ import annotations

import psycopg

from pyfence import _statements, _telemetry
from pyfence._backend import Backend, S
from pyfence._clock import Waiting, now
from pyfence._state import LeaseState
from pyfence.errors import FenceError, OutcomeUnknown, SchemaMismatch
from pyfence.types import Holder, Seconds, checked_text, default_owner, seconds, ttl_seconds

TRANSIENT = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction, OutcomeUnknown)
"""Failures that a waiting acquire survives once the database has answered it: of the server and the network."""


class Request:
    """What `acquire` was called with. It does not wait itself: the client does, the way its kind waits.

    Raises:
        BadArgument: before anything is sent.
    """

    def __init__(self, resource: str, ttl: Seconds, owner: str | None, wait: Seconds | None) -> None:
        self.resource = checked_text(resource, name="resource")
        self._ttl = ttl_seconds(ttl)
        label = default_owner() if owner is None else checked_text(owner, name="owner")
        self._statement = _statements.acquire(self.resource, self._ttl, label)
        self._waiting = Waiting(None if wait is None else seconds(wait, name="wait", maximum=None, zero=True))
        self._holder: Holder | None = None

    def ask(self, backend: Backend[S], *, timeout: float | None = None) -> LeaseState | None:
        """Asks once, blocking: the lease, or None where somebody else has it. Raises what `Calls.run` raises."""
        sent = now()
        length = backend.timeout if timeout is None else timeout
        rows = backend.calls.run(self._statement, timeout=length, resource=self.resource)
        if not rows:
            raise self._mismatch(backend, length)
        answer = _statements.granted(rows[0])
        if isinstance(answer, Holder):
            self._holder = answer
            return None
        state = LeaseState(answer, ttl=self._ttl, sent=sent)
        _telemetry.granted(state.resource, state.token)
        state.watch(backend.timekeeper)
        return state

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
        pause = self._waiting.pause(self._holder.retry_in)
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
