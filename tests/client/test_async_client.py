"""The async client does what the sync one does, on async connections, whatever the event loop does meanwhile."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from client.support import async_source, backends, body, idle_in_transaction, terminate
from harness import Database, level, wait_until
from proxy import Proxy
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

import pyfence
from pyfence.errors import translated

KINDS = ["url", "pool", "engine"]
UPDATE = "update public.report set body = %s where id = %s"


@asynccontextmanager
async def fence_over(db: Database, kind: str = "url", **options: Any) -> AsyncIterator[pyfence.AsyncFence]:
    async with async_source(kind, db.url("app")) as where, pyfence.AsyncFence(where, **options) as fence:
        yield fence


# -- what it does ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_does_everything(db: Database, report: str, kind: str) -> None:
    async def main() -> None:
        async with fence_over(db, kind) as fence, fence.lease("report:1", ttl=0.6) as lease:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lease.lost.wait(), 0.8)
            async with lease.transaction() as conn:
                assert isinstance(conn, psycopg.AsyncConnection)
                await conn.execute(UPDATE, ("one", 1))
                assert body(db) == "old"
            assert body(db) == "one"
            assert await lease.fenced_update(report, {"id": 1}, {"body": "two"}) == 1
            assert await lease.renew() == lease.expires_at
            with pytest.raises(pyfence.LeaseHeld) as held:
                await fence.acquire("report:1")
            assert held.value.token == lease.token
            async with (
                fence.lease("report:2") as other,
                fence.transaction(lease, other, isolation="SERIALIZABLE") as conn,
            ):
                await conn.execute("update public.report set body = 'both' where id in (1, 2)")
            assert body(db, 2) == "both"
            with pytest.raises(pyfence.WrongResource):
                await lease.fenced_update(report, {"id": 3}, {"body": "x"})
            with pytest.raises(ZeroDivisionError):
                async with lease.transaction() as conn:
                    await conn.execute(UPDATE, ("lost", 1))
                    raise ZeroDivisionError
            assert body(db) == "both"
            lease.raise_if_lost()
            assert not idle_in_transaction(db)
        assert db.execute("select distinct state from fence.leases") == [("closed",)]

    asyncio.run(main())


def test_a_lease_is_one_round_trip_and_a_transaction_two(db: Database, proxy: Proxy, report: str) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app"))) as fence:
            lease = await fence.acquire("report:1")
            await lease.fenced_update(report, {"id": 1}, {"body": "warm"})

            async def trips(call: Callable[[], Awaitable[object]]) -> int:
                before = proxy.round_trips
                await call()
                return proxy.round_trips - before

            async def transaction() -> None:
                async with lease.transaction():
                    pass

            for _ in range(6):  # more often than a driver needs to decide to prepare
                assert await trips(lease.renew) == 1
                assert await trips(lambda: lease.fenced_update(report, {"id": 1}, {"body": "x"})) == 1
                assert await trips(transaction) == 2
            assert await trips(lease.release) == 1

    asyncio.run(main())


def test_a_wait_ends_with_the_lease_and_holds_nothing_meanwhile(db: Database) -> None:
    async def main() -> None:
        async with fence_over(db) as fence:
            first = await fence.acquire("report:1", ttl=60)
            waiters = [asyncio.create_task(fence.acquire("report:1", wait=20)) for _ in range(50)]
            await asyncio.sleep(0.4)
            assert len(backends(db)) <= 4 + 1
            assert fence._threads._count <= 4
            for waiter in waiters[:47]:
                waiter.cancel()
            await asyncio.gather(*waiters[:47], return_exceptions=True)
            tokens = [first.token]
            assert await first.release()
            left = set(waiters[47:])
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for waiter in done:
                    tokens.append(waiter.result().token)
                    assert await waiter.result().release()
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 4
            await fence.acquire("report:1", ttl=60)
            start = time.monotonic()
            with pytest.raises(pyfence.LeaseHeld):
                await fence.acquire("report:1", wait=0.4)
            assert 0.4 <= time.monotonic() - start < 2

    asyncio.run(main())


def test_closing_ends_a_wait_and_leaves_nothing_open(db: Database) -> None:
    async def main() -> None:
        async with fence_over(db) as fence:
            lease = await fence.acquire("report:1", ttl=60)
            async with lease.transaction():
                pass
            waiter = asyncio.create_task(fence.acquire("report:1", wait=None))
            await asyncio.sleep(0.2)
        with pytest.raises(pyfence.FenceError, match="closed"):
            await waiter
        with pytest.raises(ValueError, match="closed"):
            await fence.acquire("report:2")

    asyncio.run(main())
    wait_until(lambda: not backends(db), "every connection is closed")


def test_a_late_owner_changes_nothing(db: Database, report: str) -> None:
    async def main() -> None:
        async with fence_over(db) as fence:
            old = await fence.acquire("report:1", ttl=0.2)
            new = await fence.acquire("report:1", ttl=30, wait=5)
            assert new.token > old.token
            with pytest.raises(pyfence.StaleToken):
                await old.renew()
            assert old.lost.is_set()
            await asyncio.wait_for(old.lost.wait(), 1)
            assert await old.release() is False
            with pytest.raises(pyfence.StaleToken):
                await old.fenced_update(report, {"id": 1}, {"body": "late"})
            with pytest.raises(pyfence.StaleToken):
                async with old.transaction():
                    pytest.fail("the block ran")
            assert await new.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
            assert await new.release() is True
            assert await new.release() is False
            for use in (new.renew, new.transaction, new.raise_if_lost):
                with pytest.raises(pyfence.LeaseLost) as lost:
                    answer: Any = use()
                    await answer
                assert lost.value.reason == "released"
        assert body(db) == "new"

    asyncio.run(main())


def test_not_reentrant_and_nested_blocks_leave_the_outer_alone(db: Database, report: str) -> None:
    async def main() -> None:
        async with fence_over(db) as fence, fence.lease("report:1", owner="me") as outer:
            with pytest.raises(pyfence.LeaseHeld):
                async with fence.lease("report:1", owner="me"):
                    pytest.fail("the inner block ran")
            async with fence.lease("report:2", owner="me"):
                pass
            assert not outer.lost.is_set()
            assert await outer.fenced_update(report, {"id": 1}, {"body": "still mine"}) == 1

    asyncio.run(main())


def test_one_lease_serves_many_tasks(db: Database, report: str) -> None:
    async def main() -> None:
        async with fence_over(db, "pool") as fence, fence.lease("report:1", ttl=2) as lease:

            async def work(number: int) -> None:
                await lease.renew()
                await lease.fenced_update(report, {"id": 1}, {"amount": number})
                async with lease.transaction() as conn:
                    await conn.execute("update public.report set body = body || '.' where id = 1")

            await asyncio.gather(*(work(n) for n in range(30)))
            released = await asyncio.gather(*(lease.release() for _ in range(8)))
            assert sorted(released) == [False] * 7 + [True]
        assert body(db) == "old" + "." * 30

    asyncio.run(main())


def test_one_client_serves_one_loop_after_another(db: Database, report: str) -> None:
    fence = pyfence.AsyncFence(db.url("app"))

    async def work(number: int) -> None:
        async with fence.lease("report:1", ttl=5) as lease, lease.transaction() as conn:
            await conn.execute(UPDATE, (str(number), 1))

    for number in range(3):
        asyncio.run(work(number))
    assert body(db) == "2"
    assert len(backends(db)) == 2  # one for the calls, one for the work
    asyncio.run(fence.close())
    wait_until(lambda: not backends(db), "every connection is closed")


def test_isolation_is_the_transactions_own(db: Database, report: str, isolation: psycopg.IsolationLevel) -> None:
    async def main() -> None:
        async with fence_over(db, "pool", timeout=5) as fence, fence.lease("report:1") as lease:
            for form in (isolation, isolation.name, level(isolation)):
                async with lease.transaction(isolation=form) as conn:
                    cursor = await conn.execute("show transaction_isolation")
                    assert await cursor.fetchone() == (level(isolation),)
                    await conn.execute(UPDATE, (str(form), 1))
                async with lease.transaction() as conn:
                    assert await (await conn.execute("show transaction_isolation")).fetchone() == ("read committed",)
            with pytest.raises(pyfence.BadArgument):
                async with lease.transaction(isolation="chaos"):
                    pass

    asyncio.run(main())


# -- on the caller's connection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["psycopg", "connection", "session", "scoped session"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_callers_transaction_is_joined(db: Database, report: str, how: str, end: str) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[object]]]]:
        engine = create_async_engine(db.url("app").replace("postgresql://", "postgresql+psycopg://"))
        if how == "psycopg":
            async with await psycopg.AsyncConnection.connect(db.url("app"), row_factory=dict_row) as conn:
                yield conn, conn.execute
        elif how == "connection":
            async with engine.connect() as sa:
                yield sa, lambda text: sa.execute(sqlalchemy.text(text))
        else:
            session: Any = AsyncSession(engine)
            if how == "scoped session":
                session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
            yield session, lambda text: session.execute(sqlalchemy.text(text))
            await session.close()
        await engine.dispose()

    async def main() -> None:
        async with fence_over(db) as fence, opened() as (conn, execute):
            lease = await fence.acquire("report:1")
            for _ in range(2):
                await pyfence.apresent(conn, lease)
                await execute("update public.report set body = 'mine' where id = 1")
                assert body(db) in ("old", "mine")
                await getattr(conn, end)()
            assert body(db) == ("mine" if end == "commit" else "old")
            assert await pyfence.afenced_update(conn, report, {"id": 1}, {"body": "joined"}, lease) == 1
            assert body(db) != "joined"
            await getattr(conn, end)()
            assert body(db) == ("joined" if end == "commit" else "old")
            with pytest.raises((psycopg.DatabaseError, sqlalchemy.exc.DBAPIError)) as refused:
                await execute("update public.report set body = 'x' where id = 1")
            assert isinstance(pyfence.errors.from_driver(refused.value), pyfence.ClaimMissing)  # type: ignore[attr-defined]
            await conn.rollback()
            db.execute("select fence.revoke('report:1', 'test')")
            with pytest.raises(pyfence.StaleToken):
                await pyfence.apresent(conn, lease)
            await conn.rollback()

    asyncio.run(main())


def test_presenting_needs_a_transaction_and_an_async_connection(db: Database, report: str) -> None:
    async def main() -> None:
        async with fence_over(db) as fence:
            lease = await fence.acquire("report:1")
            async with await psycopg.AsyncConnection.connect(db.url("app"), autocommit=True) as auto:
                with pytest.raises(pyfence.BadArgument, match="inside a transaction"):
                    await pyfence.apresent(auto, lease)
                async with auto.pipeline():
                    with pytest.raises(pyfence.BadArgument, match="inside a transaction"):
                        await pyfence.apresent(auto, lease)
                async with auto.transaction():
                    await pyfence.apresent(auto, lease)
                    await auto.execute(UPDATE, ("in a block", 1))
                assert body(db) == "in a block"
                assert await pyfence.afenced_update(auto, report, {"id": 1}, {"body": "alone"}, lease) == 1
                assert body(db) == "alone"
                with pytest.raises(pyfence.ClaimMissing), translated():
                    await auto.execute(UPDATE, ("after it", 1))
            sync = db.connect("app")
            pyfence.present(sync, lease)  # a claim is a claim
            sync.rollback()
            engine = sqlalchemy.create_engine("postgresql+psycopg://")
            for wrong in (sync, engine, None, "postgresql://", 1):
                with pytest.raises(pyfence.BadArgument, match="an asynchronous"):
                    await pyfence.apresent(wrong, lease)
            with pytest.raises(pyfence.BadArgument, match="a synchronous"):
                pyfence.present(auto, lease)
            with pytest.raises(pyfence.BadArgument, match="no lease"):
                await pyfence.apresent(auto)

    asyncio.run(main())


# -- where connections come from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: 5,
        lambda: "postgresql://[",
        lambda: ConnectionPool("", open=False),
        lambda: sqlalchemy.create_engine("postgresql+psycopg://"),
        lambda: sqlalchemy.create_engine("sqlite://"),
    ],
    ids=["int", "bad url", "sync pool", "sync engine", "sqlite"],
)
def test_not_a_source(make: Callable[[], Any]) -> None:
    with pytest.raises(pyfence.BadArgument) as caught:
        pyfence.AsyncFence(make())
    assert caught.value.hint


def test_a_sync_client_refuses_async_sources() -> None:
    for make in (lambda: AsyncConnectionPool("", open=False), lambda: create_async_engine("postgresql+psycopg://")):
        with pytest.raises(pyfence.BadArgument, match=r"(?i)async"):
            pyfence.Fence(make())  # type: ignore[arg-type]


def test_own_connections_are_opened_as_the_pool_opens_its(db: Database, report: str) -> None:
    async def configure(conn: psycopg.AsyncConnection[Any]) -> None:
        await conn.execute("set application_name = 'configured'")
        await conn.commit()

    async def password() -> str:
        return db.url("app")

    async def main() -> None:
        async with AsyncConnectionPool(password, min_size=1, open=False, configure=configure) as pool:
            await pool.wait()
            async with pyfence.AsyncFence(pool) as fence, fence.lease("report:1", ttl=0.6) as lease:
                await asyncio.sleep(0.5)
                await lease.fenced_update(report, {"id": 1}, {"body": "x"})
                names = db.cluster.admin.execute(
                    "select application_name from pg_stat_activity where datname = %s and usename = 'app'", (db.name,)
                ).fetchall()
                assert names == [("configured",)] * 2  # the pool's, and that of the calls and heartbeats

    asyncio.run(main())


def test_own_connections_are_opened_as_the_engine_opens_its(db: Database) -> None:
    opened: list[Any] = []

    async def main() -> None:
        engine = create_async_engine(
            db.url("app").replace("postgresql://", "postgresql+psycopg://"),
            pool_size=1,
            max_overflow=0,
            isolation_level="SERIALIZABLE",
        )

        @sqlalchemy.event.listens_for(engine.sync_engine, "connect")
        def connect(conn: Any, record: Any) -> None:
            cursor = conn.cursor()
            cursor.execute("set application_name = 'listened'")
            cursor.close()
            opened.append(conn)

        async with pyfence.AsyncFence(engine) as fence:
            lease = await fence.acquire("report:1")
            await lease.renew()
            assert len(opened) == 1
            assert engine.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            assert await lease.release()
        await engine.dispose()

    asyncio.run(main())
    wait_until(lambda: not backends(db), "every connection is closed")


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_work_does_not_starve_the_heartbeat_nor_the_other_way(db: Database, report: str, kind: str) -> None:
    async def main() -> None:
        async with fence_over(db, kind) as fence:

            async def job(number: int) -> bool:
                async with fence.lease(f"report:{number}", ttl=0.6) as lease:
                    async with lease.transaction() as conn:  # two at once; the others wait with their leases alive
                        await conn.execute(UPDATE, ("done", number))
                        await conn.execute("select pg_sleep(0.7)")
                    return lease.lost.is_set()

            assert await asyncio.wait_for(asyncio.gather(*(job(n) for n in range(1, 5))), 10) == [False] * 4

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_dead_connections_are_replaced(db: Database, report: str, kind: str) -> None:
    async def main() -> None:
        async with async_source(kind, db.url("app"), size=1) as where, pyfence.AsyncFence(where) as fence:
            lease = await fence.acquire("report:1", ttl=60)
            await lease.fenced_update(report, {"id": 1}, {"body": "x"})
            with pytest.raises(psycopg.OperationalError):
                async with lease.transaction() as conn:
                    terminate(db)
                    await conn.execute(UPDATE, ("lost", 1))
            await lease.renew()
            assert await lease.fenced_update(report, {"id": 1}, {"body": "found"}) == 1
            assert body(db) == "found"

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_goes_back_as_it_was(db: Database, report: str, kind: str) -> None:
    async def main() -> None:
        async with async_source(kind, db.url("app"), size=1) as where, pyfence.AsyncFence(where) as fence:
            lease = await fence.acquire("report:1")
            for level_ in (None, "serializable"):
                async with lease.transaction(isolation=level_) as conn:
                    await conn.execute(UPDATE, ("x", 1))
                await lease.fenced_update(report, {"id": 1}, {"body": "y"})
                async with fence._backend.source.work(5) as conn:
                    assert not conn.autocommit
                    assert conn.isolation_level is None
                    with pytest.raises(pyfence.ClaimMissing), translated():
                        await conn.execute(UPDATE, ("legacy", 1))

    asyncio.run(main())


def test_a_child_process_cannot_use_its_parents_lease(db: Database) -> None:
    async def acquired() -> tuple[pyfence.AsyncFence, pyfence.AsyncLease]:
        fence = pyfence.AsyncFence(db.url("app"))
        return fence, await fence.acquire("report:1")

    fence, lease = asyncio.run(acquired())
    pid = os.fork()
    if pid == 0:

        async def child() -> int:
            refused = 0
            for call in (lease.renew, lease.release, lease.raise_if_lost, lease.transaction, lambda: lease.claim):
                try:
                    answer: Any = call()
                    await answer
                except pyfence.LeaseLost as exc:
                    refused += exc.reason == "forked"
            async with fence.lease("report:2", ttl=0.6) as own:
                await asyncio.sleep(0.8)
                refused += not own.lost.is_set()
            return refused

        os._exit(asyncio.run(child()))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 6
    asyncio.run(lease.renew())  # type: ignore[arg-type]
    assert asyncio.run(lease.release())  # type: ignore[arg-type]
    asyncio.run(fence.close())
