"""Runs the client's blocking calls for event loops, in a few daemon threads.

The short calls of the async client (acquire, renew, release) are the sync client's own, on the sync client's own
connections. So they behave the same, do not depend on a loop, and a cancelled caller leaves no half-used connection:
the call comes to its end in its thread, and what nobody waits for any more is undone there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import psycopg

from pyfence._clock import now

log = logging.getLogger("pyfence")

T = TypeVar("T")


class _Job(Generic[T]):
    """One call and whoever waits for it."""

    def __init__(self, call: Callable[[float], T], timeout: float, unheard: Callable[[T], object] | None) -> None:
        self._call = call
        self._deadline = now() + timeout
        self._unheard = unheard
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._state = "queued"  # then running, done; or withdrawn
        self._abandoned = False
        self._answer: list[T] = []
        self.future: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        """In a thread."""
        with self._lock:
            if self._state != "queued":
                return
            self._state = "running"
        failure: BaseException | None = None
        try:
            self._answer.append(self._call(max(0.0, self._deadline - now())))
        except BaseException as exc:
            failure = exc
        with self._lock:
            self._state = "done"
            abandoned = self._abandoned
        if not abandoned:
            try:
                self._loop.call_soon_threadsafe(self._deliver, failure)
            except RuntimeError:  # the loop is closed
                abandoned = True
        if abandoned:
            self.undo()

    def _deliver(self, failure: BaseException | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(self._answer[0])
        else:
            self.future.set_exception(failure)

    def undo(self) -> None:
        """In a thread: makes good for an answer that nobody has heard."""
        answer, self._answer = self._answer, []
        if answer and self._unheard is not None:
            try:
                self._unheard(answer[0])
            except Exception as exc:
                log.warning("the answer to a cancelled call could not be undone: %s", exc)

    def expire(self) -> None:
        """In the loop, at the deadline: a call that has not begun is not begun any more."""
        if self._withdraw() and not self.future.done():
            self.future.set_exception(
                psycopg.errors.ConnectionTimeout("nothing was sent: earlier calls have not been answered yet")
            )

    def _withdraw(self) -> bool:
        with self._lock:
            if self._state != "queued":
                return False
            self._state = "withdrawn"
            return True

    def abandon(self, *, anyway: bool) -> bool:
        """In the loop: nobody waits any more. True: there is an answer to be undone already."""
        if not anyway and self._withdraw():
            return False
        with self._lock:
            self._abandoned = True
            return self._state == "done" and bool(self._answer)


class Threads:
    """At most `limit` daemon threads, which end when there is nothing to do."""

    _LINGER = 10.0  # seconds

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._queue: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._count = 0
        self._idle = 0

    async def run(
        self,
        call: Callable[[float], T],
        *,
        timeout: float,
        unheard: Callable[[T], object] | None = None,
        anyway: bool = False,
    ) -> T:
        """What `call` gives, or raises. It is called with the seconds that are left of `timeout`.

        Args:
            unheard: called, in a thread, with the answer to a call whose caller was cancelled meanwhile.
            anyway: a call that had to wait for its turn is made even if its caller is cancelled by then.

        Raises:
            psycopg.errors.ConnectionTimeout: it was not begun within `timeout`.
        """
        job = _Job(call, timeout, unheard)
        self._submit(job.run)
        alarm = asyncio.get_running_loop().call_later(timeout, job.expire)
        try:
            return await job.future
        except BaseException:
            if job.abandon(anyway=anyway):
                self._submit(job.undo)
            raise
        finally:
            alarm.cancel()

    def _submit(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._queue.append(work)
            if self._idle >= len(self._queue):
                self._changed.notify()
            elif self._count < self._limit:
                try:
                    threading.Thread(target=self._work, name="pyfence-call", daemon=True).start()
                except RuntimeError:
                    with suppress(ValueError):
                        self._queue.remove(work)
                    raise psycopg.OperationalError("the interpreter is shutting down") from None
                self._count += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: bool(self._queue), self._LINGER)
                self._idle -= 1
                if not self._queue:
                    self._count -= 1
                    return
                work = self._queue.popleft()
            work()
            del work  # it may hold the last reference to a lease
