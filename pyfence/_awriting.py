"""Presenting claims, and writing under them, awaited. What is sent and what it means stands in `_writing`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pyfence import _statements, _telemetry
from pyfence._aconnect import AsyncConnection, AsyncSource
from pyfence._backend import Backend
from pyfence._calls import Unreplicated, end_with_sync
from pyfence._statements import Row, Statement
from pyfence._writing import (
    Holding,
    Isolation,
    claims_of,
    count,
    in_transaction,
    is_pipelined,
    isolation_level,
    not_a_connection,
    numbered,
    only,
    outside_transaction,
    watched,
)
from pyfence.errors import translated
from pyfence.types import Claim


async def apresent(conn: Any, *leases: Holding | Claim) -> None:
    """`pyfence.present` on an async connection: presents leases in the caller's transaction.

    Args:
        conn: a psycopg `AsyncConnection`, or a SQLAlchemy `AsyncConnection` or `AsyncSession` over psycopg.
        leases: `AsyncLease`, `Lease` or `Claim` objects, at least one.

    Raises:
        StaleToken, UnknownLease, BadArgument, psycopg.errors.SerializationFailure: as `pyfence.present`.
    """
    claims = claims_of(leases)
    statement = _statements.present(claims)
    driver = await _joined(conn)
    if driver.autocommit and not await _in_transaction(driver):
        raise outside_transaction()
    with translated(resource=only(claims)):
        await (await _execute(driver, statement)).fetchall()


async def afenced_update(
    conn: Any,
    table: object,
    key: Mapping[str, object],
    changes: Mapping[str, object],
    lease: Holding | Claim,
    *,
    sequence: int | None = None,
) -> int:
    """`pyfence.fenced_update` on an async connection: changes one row under a lease. Gives 1, or 0: no such row.

    Args:
        conn: a psycopg `AsyncConnection`, or a SQLAlchemy `AsyncConnection` or `AsyncSession` over psycopg.
        table, key, changes, lease, sequence: as for `pyfence.fenced_update`.

    Raises:
        StaleToken, LeaseExpired and others: as `pyfence.fenced_update`.
    """
    (claim,) = claims_of([lease])
    statement = _statements.fenced_update(table, key, changes, numbered(claim, sequence))
    driver = await _joined(conn)
    with translated(resource=claim.resource):
        return count(await (await _execute(driver, statement)).fetchone())


async def fenced_update_alone(
    backend: Backend[AsyncSource],
    table: object,
    key: Mapping[str, object],
    changes: Mapping[str, object],
    claim: Claim,
) -> int:
    """`afenced_update` on a connection of the source: one round trip, committed, and within the backend's timeout."""
    statement = _statements.fenced_update(table, key, changes, claim)
    with translated(resource=claim.resource):
        async with backend.source.work(backend.timeout) as conn, _set(conn, autocommit=True):
            with watched(backend, conn), Unreplicated(conn):
                return count(await (await _execute(conn, statement)).fetchone())


@asynccontextmanager
async def transaction(
    backend: Backend[AsyncSource], claims: Sequence[Claim], *, isolation: Isolation | None = None
) -> AsyncIterator[AsyncConnection]:
    """A transaction on a connection of the source, with the claims presented: committed at the end of the block."""
    statement = _statements.present(claims)
    level = isolation_level(isolation)
    resources = [claim.resource for claim in claims]
    with _telemetry.span("pyfence.transaction", *resources), translated(resource=only(claims)):
        async with (
            backend.source.work(backend.timeout) as conn,
            # Autocommit, so that the only begin is ours: else the driver sends its own, in a round trip of its own.
            _set(conn, autocommit=True, isolation_level=level),
        ):
            with Unreplicated(conn):
                async with AsyncExitStack() as block:
                    with watched(backend, conn):
                        async with _pipelined(conn):
                            await _begin(backend, conn, block)
                            await _execute(conn, statement)
                    yield conn


async def _begin(backend: Backend[AsyncSource], conn: AsyncConnection, block: AsyncExitStack) -> None:
    # Not conn.transaction(), which waits for the server twice when it is entered in a pipeline.
    transaction = psycopg.AsyncTransaction(conn)

    async def end(
        kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with watched(backend, conn):
            return await transaction.__aexit__(kind, exc, trace)

    await transaction.__aenter__()
    block.push_async_exit(end)


async def _execute(conn: AsyncConnection, statement: Statement) -> psycopg.AsyncCursor[Row]:
    """See `pyfence._calls.execute`."""
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    return await cursor.execute(statement.sql, statement.params, prepare=False)


@asynccontextmanager
async def _pipelined(conn: AsyncConnection) -> AsyncIterator[None]:
    """See `pyfence._calls.pipelined`."""
    if psycopg.AsyncPipeline.is_supported():
        async with conn.pipeline() as pipeline:
            end_with_sync(pipeline)
            yield
    else:
        yield


async def _joined(conn: Any) -> AsyncConnection:
    """The driver's connection under what the caller passed, after opening the caller's transaction where it has one."""
    if isinstance(conn, psycopg.AsyncConnection):
        return conn
    driver: Any = None
    if inspect.iscoroutinefunction(getattr(type(conn), "connection", None)):  # a session: this begins its transaction
        conn = await conn.connection()
    if hasattr(conn, "sync_connection"):  # SQLAlchemy's AsyncConnection
        driver = (await conn.get_raw_connection()).driver_connection
        if isinstance(driver, psycopg.AsyncConnection) and not driver.autocommit and not conn.in_transaction():
            await conn.begin()  # as its first statement would
    if isinstance(driver, psycopg.AsyncConnection):
        return driver
    instead = "a psycopg AsyncConnection, or a SQLAlchemy AsyncConnection or AsyncSession"
    raise not_a_connection(conn, "an asynchronous", instead)


async def _in_transaction(conn: AsyncConnection) -> bool:
    if is_pipelined(conn):
        async with conn.pipeline():
            pass  # a synchronization point, after which the status is true
    return in_transaction(conn)


@asynccontextmanager
async def _set(
    conn: AsyncConnection, *, autocommit: bool, isolation_level: psycopg.IsolationLevel | None = None
) -> AsyncIterator[None]:
    """Attributes of an idle connection for the length of the block. No round trip.

    A connection that cannot be put back as it was, because the task is being cancelled, is ended.
    """
    before = conn.autocommit, conn.isolation_level
    try:
        await conn.set_autocommit(autocommit)
        if isolation_level is not None:
            await conn.set_isolation_level(isolation_level)
        yield
    finally:
        try:
            await conn.set_autocommit(before[0])
            await conn.set_isolation_level(before[1])
        except psycopg.Error:
            pass  # a dead connection, which its pool throws away
        finally:
            if (conn.autocommit, conn.isolation_level) != before:
                conn.pgconn.finish()
