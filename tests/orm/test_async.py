"""The same for AsyncSession and AsyncConnection, and for claims of any lease."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from harness import Database
from orm.model import Report, async_engine_over, bodies
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

import pyfence
from pyfence.sqlalchemy import fenced, fenced_execute, translate_errors

SET_1 = update(Report).where(Report.id == 1)


def test_an_async_session(db: Database, engine, lease) -> None:
    async def run() -> None:
        engine = async_engine_over(db, pool_size=1, max_overflow=0, pool_timeout=5)
        translate_errors(engine)
        async with AsyncSession(engine) as session:
            async with fenced(session, lease):
                (await session.get_one(Report, 1)).body = "first"
                await session.commit()
                async with session.begin_nested():
                    await session.execute(SET_1.values(body="second"))
                await session.commit()
                with pytest.raises(pyfence.WrongResource) as refused:
                    await session.execute(text("update report set body = 'x'"))
                assert isinstance(refused.value, DBAPIError)
                assert isinstance(refused.value.__cause__, psycopg.Error)
                await session.rollback()
                await session.execute(select(1))
            async with fenced(session, lease):  # the transaction is open
                await session.execute(SET_1.values(body="third"))
                await session.commit()
            with pytest.raises(pyfence.ClaimMissing):
                await session.execute(SET_1.values(body="x"))
            await session.rollback()
            assert await fenced_execute(session, SET_1.values(body="fourth"), lease) == 1
            await session.commit()
            with pytest.raises(pyfence.BadArgument, match="asynchronous"), fenced(session, lease):
                pass
        await engine.dispose()

    asyncio.run(run())
    assert bodies(db)[1] == "fourth"


def test_an_async_connection(db: Database, engine, lease) -> None:
    async def run() -> None:
        engine = async_engine_over(db, pool_size=1, max_overflow=0, pool_timeout=5)
        async with engine.connect() as conn, fenced(conn, lease.claim):
            for body in ("first", "second"):
                await conn.execute(SET_1.values(body=body))
                async with conn.begin_nested():
                    await conn.execute(SET_1.values(serial=1))
                await conn.commit()
            assert lease.release()
            for _ in range(2):
                with pytest.raises(pyfence.StaleToken):
                    await conn.execute(SET_1.values(body="x"))
                await conn.rollback()
        async with engine.connect() as conn:
            conn = await conn.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(pyfence.BadArgument, match="AUTOCOMMIT"):
                await fenced_execute(conn, SET_1.values(body="x"), lease)
        await engine.dispose()

    asyncio.run(run())
    assert bodies(db)[1] == "second"


def test_a_cancelled_statement_leaves_no_transaction(db: Database, engine, lease) -> None:
    async def run() -> None:
        engine = async_engine_over(db, pool_size=1, max_overflow=0, pool_timeout=5)
        async with AsyncSession(engine) as session, fenced(session, lease):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await session.execute(SET_1.values(body="x"))
                    await session.execute(text("select pg_catalog.pg_sleep(60)"))
        async with AsyncSession(engine) as session, fenced(session, lease):
            await session.execute(SET_1.values(body="after"))
            await session.commit()
        await engine.dispose()

    asyncio.run(run())
    assert bodies(db)[1] == "after"


def test_an_async_lease(db: Database, engine) -> None:
    async def run() -> None:
        engine = async_engine_over(db)
        async with pyfence.AsyncFence(engine) as fence, fence.lease("report:1") as lease:
            async with AsyncSession(engine) as session, fenced(session, lease):
                (await session.get_one(Report, 1)).body = "async"
                await session.commit()
            async with engine.begin() as conn:
                assert await fenced_execute(conn, SET_1.values(serial=9), lease) == 1
        await engine.dispose()

    asyncio.run(run())
    assert bodies(db)[1] == "async"
