"""Where connections come from, how many there are, and whose they are."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
from client.support import backends, body, source, terminate
from harness import Database, wait_until
from proxy import Proxy
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import pyfence

KINDS = ["url", "pool", "engine"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_does_everything(db: Database, report: str, kind: str) -> None:
    with source(kind, db.url("app")) as where, pyfence.Fence(where) as fence, fence.lease("report:1", ttl=0.6) as lease:
        assert not lease.lost.wait(0.8)
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'one' where id = 1")
        assert lease.fenced_update(report, {"id": 1}, {"amount": 1}) == 1
        assert body(db) == "one"
        with pytest.raises(pyfence.LeaseHeld):
            fence.acquire("report:1")
        with fence.lease("report:2") as other, fence.transaction(lease, other, isolation="SERIALIZABLE") as conn:
            conn.execute("update public.report set body = 'both' where id in (1, 2)")
        assert body(db, 2) == "both"
        with pytest.raises(pyfence.WrongResource):
            lease.fenced_update(report, {"id": 3}, {"body": "x"})


@pytest.mark.parametrize("prefix", ["postgresql://", "postgres://", "postgresql+psycopg://"])
def test_urls_of_either_habit(db: Database, prefix: str) -> None:
    url = db.url("app").replace("postgresql://", prefix)
    assert url.startswith(prefix)
    with pyfence.Fence(url) as fence:
        assert fence.acquire("report:1").release()
    with ConnectionPool(db.url("app"), min_size=1, open=True) as pool, pyfence.Fence(pool) as fence:
        assert fence.acquire("report:1").release()


def test_the_clients_own_connections_say_who_they_are(db: Database, report: str) -> None:
    names = "select application_name from pg_stat_activity where datname = %s and usename = 'app'"
    with pyfence.Fence(db.url("app")) as fence:
        fence.acquire("report:1").fenced_update(report, {"id": 1}, {"body": "x"})
        assert db.cluster.admin.execute(names, (db.name,)).fetchall() == [("pyfence",), ("pyfence",)]
    with pyfence.Fence(psycopg.conninfo.make_conninfo(db.url("app"), application_name="mine")) as fence:
        fence.acquire("report:2")
        assert ("mine",) in db.cluster.admin.execute(names, (db.name,)).fetchall()


OTHER_SOURCES = [
    pytest.param(lambda: 5, id="int"),
    pytest.param(lambda: None, id="none"),
    pytest.param(lambda: "postgresql://[", id="bad url"),
    pytest.param(lambda: "no conninfo", id="bad conninfo"),
    pytest.param(lambda: sqlalchemy.create_engine("sqlite://"), id="sqlite"),
    pytest.param(lambda: AsyncConnectionPool("", open=False), id="async pool"),
]


@pytest.mark.parametrize("make", OTHER_SOURCES)
def test_not_a_source(make: Any) -> None:
    with pytest.raises(pyfence.BadArgument) as caught:
        pyfence.Fence(make())
    assert caught.value.hint


def test_a_bad_url_is_not_repeated_with_its_password() -> None:
    with pytest.raises(pyfence.BadArgument) as caught:
        pyfence.Fence("postgresql://app:hunter2@[::1/db")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("jobs", [2, 4])
@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_work_does_not_starve_the_heartbeat_nor_the_other_way(db: Database, report: str, kind: str, jobs: int) -> None:
    with source(kind, db.url("app"), size=2) as where, pyfence.Fence(where) as fence:
        together = threading.Barrier(jobs)

        def job(number: int) -> bool:
            with fence.lease(f"report:{number}", ttl=0.9) as lease:
                together.wait(10)
                with lease.transaction() as conn:  # at most two at once; the others wait with their leases alive
                    conn.execute("update public.report set body = 'done' where id = %s", (number,))
                    conn.execute("select pg_sleep(1.2)")
                return lease.lost.is_set()

        start = time.monotonic()
        with ThreadPoolExecutor(jobs) as threads:
            assert list(threads.map(job, range(1, jobs + 1))) == [False] * jobs
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_an_idle_lease_holds_no_pooled_connection(db: Database, report: str, kind: str) -> None:
    with (
        source(kind, db.url("app"), size=1) as where,
        pyfence.Fence(where) as fence,
        fence.lease("report:1", ttl=0.6) as lease,
    ):
        lease.fenced_update(report, {"id": 1}, {"body": "x"})
        with fence.lease("report:2") as other, other.transaction():
            pass
        for _ in range(3):
            with fence._backend.source.work(2) as conn:  # the pool's only one is free
                conn.execute("select 1")
            time.sleep(0.25)
        assert "idle in transaction" not in dict(backends(db)).values()


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_closing_closes_nobody_elses(db: Database, report: str, kind: str) -> None:
    with source(kind, db.url("app"), size=1) as where:
        with pyfence.Fence(where) as fence:
            fence.acquire("report:1").fenced_update(report, {"id": 1}, {"body": "x"})
            assert len(backends(db)) == 2
        wait_until(lambda: len(backends(db)) == 1, "only the pool's connection is left")
        with where.connect() if kind == "engine" else where.connection() as conn:
            conn.execute(sqlalchemy.text("select 1") if kind == "engine" else "select 1")


@pytest.mark.parametrize("kind", KINDS)
def test_dead_connections_are_replaced(db: Database, report: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with source(kind, db.url("app"), size=1) as where, pyfence.Fence(where) as fence:
        lease = fence.acquire("report:1", ttl=60)
        lease.fenced_update(report, {"id": 1}, {"body": "x"})
        terminate(db)
        lease.renew()  # own connections are looked at before they are used
        if kind != "url":  # how long a pool goes on handing out dead connections is the pool's affair
            for _ in range(3):
                try:
                    lease.fenced_update(report, {"id": 1}, {"body": "y"})
                except psycopg.OperationalError:
                    continue
                break
        assert lease.fenced_update(report, {"id": 1}, {"body": "z"}) == 1
        with pytest.raises(psycopg.OperationalError), lease.transaction() as conn:
            terminate(db)
            conn.execute("update public.report set body = 'lost' where id = 1")
        assert lease.fenced_update(report, {"id": 1}, {"body": "found"}) == 1
        assert body(db) == "found"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_own_connections_are_opened_as_the_pool_opens_its(db: Database) -> None:
    seen: list[psycopg.Connection[Any]] = []

    def configure(conn: psycopg.Connection[Any]) -> None:
        seen.append(conn)
        conn.execute("set statement_timeout = '7s'")
        conn.commit()

    class Special(psycopg.Connection[Any]):
        pass

    with ConnectionPool(
        db.url("app"),
        min_size=1,
        open=True,
        configure=configure,
        connection_class=Special,
        kwargs={"autocommit": False},
    ) as pool:
        pool.wait()
        with pyfence.Fence(pool) as fence:
            fence.acquire("report:1")
            own = seen[-1]
            assert isinstance(own, Special)
            assert own.autocommit
            assert own.execute("show statement_timeout").fetchone() == ("7s",)


def test_own_connections_are_opened_as_the_engine_opens_its(db: Database) -> None:
    opened: list[Any] = []
    url = db.url("app").replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0, isolation_level="SERIALIZABLE")

    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(conn: Any, record: Any) -> None:
        opened.append(conn)

    @sqlalchemy.event.listens_for(engine, "do_connect")
    def do_connect(dialect: Any, record: Any, args: Any, params: dict[str, Any]) -> None:
        params["application_name"] = "as told"

    with pyfence.Fence(engine) as fence:
        fence.acquire("report:1")
        assert len(opened) == 1
        assert opened[0].autocommit
        assert opened[0].info.get_parameters()["application_name"] == "as told"
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert opened[0].closed
    engine.dispose()


@pytest.mark.parametrize("pool", [sqlalchemy.NullPool, sqlalchemy.StaticPool, sqlalchemy.SingletonThreadPool])
def test_an_engine_with_another_kind_of_pool(db: Database, report: str, pool: Any) -> None:
    engine = sqlalchemy.create_engine(db.url("app").replace("postgresql://", "postgresql+psycopg://"), poolclass=pool)
    with pyfence.Fence(engine) as fence, fence.lease("report:1", ttl=0.6) as lease:
        assert not lease.lost.wait(0.8)
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'new' where id = 1")
            assert body(db) == "old"
        assert lease.fenced_update(report, {"id": 1}, {"amount": 1}) == 1
    with engine.connect() as sa:
        assert sa.scalar(sqlalchemy.text("select body from public.report where id = 1")) == "new"
    engine.dispose()


@pytest.mark.parametrize("isolation", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_an_engines_isolation_does_not_open_a_hole(db: Database, report: str, isolation: Any) -> None:
    url = db.url("app").replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url, isolation_level=isolation)
    with pyfence.Fence(engine) as fence, fence.lease("report:1") as lease:
        with pytest.raises(ZeroDivisionError), lease.transaction() as conn:
            conn.execute("update public.report set body = 'x' where id = 1")
            raise ZeroDivisionError
        assert body(db) == "old"
        assert lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
        with engine.connect() as sa, pytest.raises(sqlalchemy.exc.DatabaseError) as caught:
            sa.execute(sqlalchemy.text("update public.report set body = 'x' where id = 1"))
        assert isinstance(pyfence.errors.from_driver(caught.value), pyfence.ClaimMissing)  # type: ignore[attr-defined]
    engine.dispose()


def test_nothing_relies_on_the_state_of_a_session(db: Database, report: str) -> None:
    """As behind a pooler in transaction mode: between two transactions everything a session remembers is gone."""
    with pyfence.Fence(db.url("app")) as fence:
        backend: Any = fence._backend
        for number in range(30):
            with fence.lease("report:1", ttl=5) as lease:
                lease.renew()
                assert lease.fenced_update(report, {"id": 1}, {"amount": number}) == 1
                with lease.transaction() as conn:
                    conn.execute("update public.report set body = 'x' where id = 1")
            for line in (backend.calls, backend.source):
                (idle,) = line._idle._idle
                assert idle.execute("select count(*) from pg_prepared_statements", prepare=False).fetchone() == (0,)
                idle.rollback()
                idle.autocommit = True
                idle.execute("discard all", prepare=False)
                idle.autocommit = line is backend.calls


def commit_waits(db: Database) -> bool:
    """Whether a commit waits for a standby by now: the checkpointer tells the backends, some time after the reload."""
    probe = db.connect("app_owner", autocommit=True)
    pid = probe.info.backend_pid
    future = db.in_thread(probe.execute, "create temp table probe ()")
    waiting = "select wait_event = 'SyncRep' from pg_stat_activity where pid = %s"
    wait_until(
        lambda: future.done() or db.cluster.admin.execute(waiting, (pid,)).fetchone() == (True,), "the probe is done"
    )
    waits = not future.done()
    db.cluster.admin.execute("select pg_cancel_backend(%s)", (pid,))
    future.result(10)
    probe.close()
    return waits


def test_a_cancelled_wait_for_a_standby_is_an_unknown_outcome(db: Database, report: str) -> None:
    admin = db.cluster.admin

    def transaction() -> None:
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'z' where id = 1")

    async def awaited() -> None:
        """The same over the async client."""
        async with pyfence.AsyncFence(db.url("app"), timeout=0.4) as fence:
            with pytest.raises(pyfence.OutcomeUnknown, match="replicated"):
                await fence.acquire("report:3")
            with pytest.raises(pyfence.OutcomeUnknown, match="replicated"):
                async with fence.transaction(lease.claim) as conn:
                    await conn.execute("update public.report set body = 'y' where id = 1")

    with pyfence.Fence(db.url("app"), timeout=0.4) as fence:
        lease = fence.acquire("report:1", ttl=60)
        lease.fenced_update(report, {"id": 1}, {"body": "x"})
        try:
            admin.execute("alter system set synchronous_standby_names = 'nobody'")
            admin.execute("select pg_reload_conf()")
            wait_until(lambda: commit_waits(db), "commits wait for a standby")
            for call in (
                lambda: fence.acquire("report:2"),
                lambda: lease.fenced_update(report, {"id": 1}, {"body": "y"}),
                lease.renew,
                transaction,
            ):
                with pytest.raises(pyfence.OutcomeUnknown) as caught:
                    call()
                assert "replicated" in str(caught.value)
            asyncio.run(awaited())
            assert not fence._renewer._held
        finally:
            admin.execute("alter system reset synchronous_standby_names")
            admin.execute("select pg_reload_conf()")
        wait_until(lambda: admin.execute("show synchronous_standby_names").fetchone() == ("",), "the server knows")
        lease.renew()
        assert body(db) == "y"  # it had happened


def test_a_host_that_does_not_answer(db: Database, proxy: Proxy) -> None:
    proxy.replies.hold()
    with pyfence.Fence(proxy.url(db.url("app")), timeout=0.4) as fence:
        start = time.monotonic()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            fence.acquire("report:1")
        assert time.monotonic() - start < 2
