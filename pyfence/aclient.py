"""The client for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg

from pyfence import _awriting, _telemetry
from pyfence._aconnect import AsyncSource, async_source_of
from pyfence._base import BaseFence, not_released, note_loss, raise_loss
from pyfence._request import TRANSIENT, Request
from pyfence._state import LeaseState
from pyfence._threads import Threads
from pyfence._writing import Isolation
from pyfence.alease import AsyncLease
from pyfence.types import Claim, Seconds

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger("pyfence")


class AsyncFence(BaseFence[AsyncSource]):
    """Leases and fenced writes over one database, for asyncio.

    The twin of `Fence`. The application's transactions run on async connections: over a URL its own, over a
    `psycopg_pool.AsyncConnectionPool` or a SQLAlchemy `AsyncEngine` the application's. Acquire, renew and release run
    in threads, on at most four connections, plus one for renewals and one that hears when a lease becomes free: a lease
    stays alive while the event loop is blocked, and a cancelled call leaves nothing behind. A lease holds no connection
    while it is idle.

    One AsyncFence may serve one event loop after another.

    Args:
        source: a ``postgresql://`` (or ``postgresql+psycopg://``) URL or libpq conninfo, a pool, or an engine.
        timeout: how long one call to the database may take before it is given up. A waiting acquire makes many.

    Raises:
        BadArgument: (a ValueError) not a source, or a bad timeout.
    """

    def __init__(self, source: str | AsyncConnectionPool[Any] | AsyncEngine, *, timeout: Seconds = 10.0) -> None:
        super().__init__(lambda: async_source_of(source), timeout=timeout)

    def _start(self) -> None:
        super()._start()
        self._threads = Threads(limit=4)

    async def acquire(
        self, resource: str, ttl: Seconds = 30, owner: str | None = None, wait: Seconds | None = 0
    ) -> AsyncLease:
        """Takes the lease on `resource`. It does not renew itself: see `lease`.

        Cancelled at any moment, it leaves at worst a lease that nobody uses, until its ttl is over; usually that lease
        is given back at once. A waiting acquire holds neither a connection nor a thread between its requests.

        Args:
            resource, ttl, owner, wait: as for `Fence.acquire`.

        Raises:
            LeaseHeld, BadArgument, AuthorityQuarantined, OutcomeUnknown, psycopg.Error: as `Fence.acquire`.
        """
        self._after_fork()
        woken = asyncio.Event()
        request = Request(resource, ttl, owner, wait, wake=_from_any_thread(woken.set))
        with _telemetry.span("pyfence.acquire", request.resource), closing(request):
            while True:
                woken.clear()
                try:
                    state = await self._ask(request)
                except TRANSIENT as exc:
                    pause = request.pause_after(exc)
                else:
                    if state is not None:
                        return AsyncLease(self._backend, state, forget=self._renewer.remove, threads=self._threads)
                    pause = request.pause()
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause)
                if self._closing.is_set():
                    raise request.closed()

    async def _ask(self, request: Request) -> LeaseState | None:
        backend = self._backend

        def unheard(state: LeaseState | None) -> None:
            if state is not None:
                request.give_back(backend, state)

        return await self._threads.run(
            lambda left: request.ask(backend, timeout=left), timeout=backend.timeout, unheard=unheard
        )

    @asynccontextmanager
    async def lease(
        self,
        resource: str,
        ttl: Seconds = 30,
        owner: str | None = None,
        wait: Seconds | None = 0,
        on_lost: Callable[[AsyncLease], object | Awaitable[object]] | None = None,
    ) -> AsyncIterator[AsyncLease]:
        """Holds the lease on `resource` for the length of a block: renews it by itself and gives it back at the end.

        Renewals run in a thread of their own, whatever the event loop does meanwhile. When the lease is lost,
        `AsyncLease.lost` is set and `on_lost` is called, once, in the event loop; the block is not interrupted.

        Args:
            resource, ttl, owner, wait: as for `acquire`.
            on_lost: a function or coroutine function, called with the lease. Its exceptions are logged.

        Raises:
            LeaseLost: at the end of a block that raised nothing itself, if the lease was lost meanwhile: the block
                did not hold it throughout. A block's own exception is the one raised, with a note of the loss.
            LeaseHeld and others: as `acquire`.
        """
        lease = await self.acquire(resource, ttl, owner, wait)
        state = lease._state
        if on_lost is not None:
            state.on_lost = _in_loop(lambda: on_lost(lease), lease.resource)
        try:
            self._renewer.add(state)
            yield lease
        except BaseException as exc:
            await self._leave(lease)
            note_loss(state, exc)
            raise
        await self._leave(lease)
        raise_loss(state)

    async def _leave(self, lease: AsyncLease) -> None:
        timeout = self._patience_at_end(lease._state)
        if timeout is None:
            return
        try:
            await lease._give_back(timeout)
        except Exception as exc:
            not_released(lease._state, exc)

    def transaction(
        self, *leases: AsyncLease | Claim, isolation: Isolation | None = None
    ) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """A block with an `AsyncConnection` in a transaction, with all `leases` presented in the order of their names.

        As `AsyncLease.transaction`, for work that needs several leases; for sequences pass
        ``lease.claim.with_sequence(n)``.
        """
        return _awriting.transaction(self._backend, self._claims(leases), isolation=isolation)

    async def close(self) -> None:
        """Ends renewals and waiting acquires and closes the connections this client has opened, nobody else's.

        Leases that are still held are not given back: they end with their ttl. An acquire that waits meanwhile ends.
        """
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _from_any_thread(call: Callable[[], object]) -> Callable[[], None]:
    """Calls `call` in the event loop that is running now, from any thread."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nobody to be told
            loop.call_soon_threadsafe(call)

    return tell


def _in_loop(call: Callable[[], object | Awaitable[object]], resource: str) -> Callable[[], None]:
    """Calls `call` in the event loop that is running now, from any thread, and awaits what it gives."""
    loop = asyncio.get_running_loop()
    tasks = set()  # the loop itself does not keep them

    async def run() -> None:
        try:
            answer = call()
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("on_lost of lease %r failed", resource)

    def start() -> None:
        task = loop.create_task(run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return _from_any_thread(start)
