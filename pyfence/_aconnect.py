"""Where the async client's connections come from: a URL, an async psycopg pool or an async SQLAlchemy engine.

As in `_connect`, there are two kinds. *Work* connections are asynchronous. *Own* ones, for acquire, renew and release,
are the sync client's: opened the way the pool or the engine opens its own, and then handed over to threads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from pyfence._connect import (
    Connection,
    IdleConnections,
    close_quietly,
    dropped_where_read_only,
    made_own,
    missing_settings,
    plain_url,
    require_psycopg,
    settings_of,
)
from pyfence.errors import BadArgument

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool
    from sqlalchemy.ext.asyncio import AsyncEngine

AsyncConnection = psycopg.AsyncConnection[Any]


class AsyncSource(Protocol):
    """What an `AsyncFence` needs of the place its connections come from."""

    def open(self) -> Connection:
        """A new own connection, in autocommit. The client closes it. Blocks; not called in an event loop."""

    def work(self, timeout: float) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection for the caller's transaction, given back at the end of the block.

        `timeout`: seconds to wait for it, where the source has no such limit of its own.
        """

    def close(self) -> None:
        """Closes what the source itself has opened; never the caller's pool or engine."""


def async_source_of(value: object) -> AsyncSource:
    """The source for what was passed to `AsyncFence`: a URL or conninfo, an `AsyncConnectionPool`, an `AsyncEngine`."""
    if isinstance(value, str):
        return AsyncUrlSource(value)
    if callable(getattr(value, "getconn", None)):
        if not inspect.iscoroutinefunction(value.getconn):  # type: ignore[attr-defined]
            raise BadArgument("a sync pool cannot serve an AsyncFence", hint="Use Fence, or an AsyncConnectionPool.")
        return AsyncPoolSource(value)  # type: ignore[arg-type]
    if callable(getattr(value, "raw_connection", None)):
        if not hasattr(value, "sync_engine"):
            raise BadArgument("an Engine cannot serve an AsyncFence", hint="Use Fence, or create_async_engine().")
        return AsyncEngineSource(value)  # type: ignore[arg-type]
    raise BadArgument(
        f"cannot take connections from a {type(value).__name__}",
        hint="Pass a postgresql:// URL, a psycopg_pool.AsyncConnectionPool or a SQLAlchemy AsyncEngine.",
    )


def end_unless_idle(conn: AsyncConnection) -> None:
    """Closes a connection that must not go back as it is: a cancellation has left it in a transaction, or worse."""
    if not conn.closed and conn.info.transaction_status != TransactionStatus.IDLE:
        conn.pgconn.finish()


async def undisturbed(work: Awaitable[object]) -> None:
    """Waits for `work`, which comes to its end even if the waiting task is cancelled."""
    await asyncio.shield(work)


class AsyncUrlSource:
    """Own and work connections to a URL. As many work connections as there are concurrent transactions."""

    def __init__(self, url: str) -> None:
        self._settings = settings_of(url)
        self._idle: IdleConnections[AsyncConnection] = IdleConnections(keep=4)

    def open(self) -> Connection:
        return psycopg.connect(**self._settings, autocommit=True)

    @asynccontextmanager
    async def work(self, timeout: float) -> AsyncIterator[AsyncConnection]:
        conn = self._idle.take() or await self._open_work(timeout)
        try:
            with dropped_where_read_only(conn):
                yield conn
        finally:
            self._idle.give(conn)

    async def _open_work(self, timeout: float) -> AsyncConnection:
        try:
            async with asyncio.timeout(timeout):
                # The application's statements are not prepared on the server: a pooler in between may lose them.
                return await psycopg.AsyncConnection.connect(**self._settings, prepare_threshold=None)
        except TimeoutError:
            raise psycopg.errors.ConnectionTimeout("no connection in time") from None

    def close(self) -> None:
        self._idle.close()


class AsyncPoolSource:
    """Work connections from the caller's async psycopg pool; own ones opened with the pool's settings, beside it."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    def open(self) -> Connection:
        return asyncio.run(self._open())

    async def _open(self) -> Connection:
        pool = self._pool
        # Both may be callables, for passwords that change.
        conninfo = await _value(pool.conninfo) or ""
        kwargs = dict(await _value(pool.kwargs) or {})
        settings = conninfo_to_dict(plain_url(conninfo))
        missing = missing_settings({**settings, **kwargs})
        conn = await pool.connection_class.connect(conninfo, **{**missing, **kwargs})
        try:
            # What the pool does to a new connection (SET ROLE) belongs to it as much as the URL does; psycopg_pool has
            # no public way to ask for it.
            configure = getattr(pool, "_configure", None)
            if configure is not None:
                await configure(conn)
        except BaseException:
            conn.pgconn.finish()
            raise
        return _handed_over(conn)

    @asynccontextmanager
    async def work(self, timeout: float) -> AsyncIterator[AsyncConnection]:
        conn = await self._pool.getconn()
        try:
            with dropped_where_read_only(conn):
                yield conn
        finally:
            end_unless_idle(conn)
            await undisturbed(self._pool.putconn(conn))

    def close(self) -> None:
        """Nothing: the pool is the caller's."""


class AsyncEngineSource:
    """Work connections from the caller's async engine; own ones made by the engine's creator, beside its pool."""

    def __init__(self, engine: AsyncEngine) -> None:
        require_psycopg(engine.dialect)
        self._engine = engine

    def open(self) -> Connection:
        return asyncio.run(self._open())

    async def _open(self) -> Connection:
        from sqlalchemy.util import greenlet_spawn  # loaded already: somebody has made the engine

        # A pool of its own, by the same creator and with the same events; detached, the connection belongs to nobody.
        fairy = await greenlet_spawn(self._engine.sync_engine.pool.recreate().connect)
        conn: Any = fairy.driver_connection
        fairy.detach()
        return _handed_over(conn)

    @asynccontextmanager
    async def work(self, timeout: float) -> AsyncIterator[AsyncConnection]:
        async with self._engine.connect() as sa:
            conn: Any = (await sa.get_raw_connection()).driver_connection
            try:
                with dropped_where_read_only(conn):
                    yield conn
            finally:
                end_unless_idle(conn)
                if conn.closed:
                    await undisturbed(sa.invalidate())

    def close(self) -> None:
        """Nothing: the engine is the caller's."""


async def _value(setting: Any) -> Any:
    value = setting() if callable(setting) else setting
    return await value if inspect.isawaitable(value) else value


def _handed_over(conn: AsyncConnection) -> Connection:
    """A sync connection over the socket of an async one, whose loop ends now."""
    own = psycopg.Connection[Any](conn.pgconn)
    own._from = conn  # type: ignore[attr-defined]  # as long as it is open: it warns when it is dropped before that
    try:
        return made_own(own)
    except BaseException:
        close_quietly(own)
        raise
