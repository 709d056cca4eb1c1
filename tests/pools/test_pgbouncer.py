"""Through a real PgBouncer in transaction mode, where one connection serves everybody in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from client.support import async_source, backends, idle_in_transaction
from guards.scene import Lease
from harness import Database, sqlstate, wait_until
from pools.pgbouncer import PROGRAM, PgBouncer
from pools.test_leaks import JOBS, PRESENT, STEAL, UPDATE, Mishap, commits, copies_its_claim

import pyfence

Driver = psycopg.Connection[Any]


def backend(conn: Driver) -> int:
    ((pid,),) = conn.execute("select pg_backend_pid()").fetchall()
    return int(pid)


def connect(bouncer: PgBouncer, db: Database, user: str = "app", **options: Any) -> Driver:
    return psycopg.connect(bouncer.url(db.url(user)), prepare_threshold=None, **options)


def expect_no_claim(conn: Driver, pid: int) -> None:
    assert backend(conn) == pid, "the same connection to the server"
    with sqlstate("LF004"):
        conn.execute(STEAL)
    conn.rollback()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_the_next_client_has_no_claim(
    bouncer: PgBouncer, db: Database, lease: Lease, job: Callable[[Driver, Lease], None]
) -> None:
    with connect(bouncer, db) as first, connect(bouncer, db) as legacy:
        pid = backend(first)
        with suppress(Mishap, psycopg.DatabaseError):
            job(first, lease)
        if first.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            first.rollback()
        expect_no_claim(legacy, pid)
        if job is copies_its_claim:
            with connect(bouncer, db, autocommit=True) as alone, sqlstate("LF004"):
                alone.execute(STEAL)
        commits(legacy, lease)


def test_single_statements_share_nothing(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    with connect(bouncer, db, autocommit=True) as one, connect(bouncer, db, autocommit=True) as other:
        assert backend(one) == backend(other)
        one.execute(PRESENT, lease.parameters)
        for conn in (one, other):
            with sqlstate("LF004"):
                conn.execute(STEAL)
        claim = pyfence.Claim(*lease.parameters)
        assert pyfence.fenced_update(one, "public.report", {"id": 1}, {"body": "new"}, claim) == 1
        with sqlstate("LF004"):
            other.execute(STEAL)


def test_a_client_that_goes_away_in_its_transaction(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    first = connect(bouncer, db)
    first.execute(PRESENT, lease.parameters)
    first.execute(UPDATE)
    first.pgconn.finish()
    with connect(bouncer, db) as legacy:
        with sqlstate("LF004"):
            legacy.execute(STEAL)
        legacy.rollback()
        assert legacy.execute("select body from public.report where id = 1").fetchall() == [("old",)]
    db.execute("select fence.release(%s, %s, %s)", lease.parameters, user="app")
    wait_until(
        lambda: bool(db.execute("select granted from fence.acquire('report:1')", user="app")[0][0]),
        "nobody is left who holds the lease",
    )


def test_the_clients_calls_survive_a_new_backend_for_each(db: Database, lease: Lease) -> None:
    """What is prepared on one connection to the server is not there on the next."""
    if PROGRAM is None:
        pytest.skip("there is no program pgbouncer (Debian, Ubuntu: apt install pgbouncer)")
    seen: set[int] = set()
    with (
        PgBouncer(db.cluster.server.settings["port"], size=4, round_robin=True) as bouncer,
        connect(bouncer, db) as one,
        connect(bouncer, db) as two,
        connect(bouncer, db) as three,
    ):
        # Three backends more than the client needs, so that its own calls go round.
        for conn in (one, two, three):
            conn.execute("select 1")
        for conn in (one, two, three):
            conn.rollback()
        with pyfence.Fence(bouncer.url(db.url("app"))) as fence:
            for turn in range(50):
                own = fence.acquire("report:2", ttl=30)
                own.renew()
                with own.transaction() as conn:
                    seen.add(backend(conn))
                    conn.execute("update public.report set body = %s where id = 2", (f"turn {turn}",))
                assert own.fenced_update("public.report", {"id": 2}, {"body": "new"}) == 1
                assert own.release()
        assert len(seen) > 1, "the connection to the server changed"


def test_a_lease_is_renewed_through_it(db: Database, lease: Lease) -> None:
    if PROGRAM is None:
        pytest.skip("there is no program pgbouncer (Debian, Ubuntu: apt install pgbouncer)")
    with (
        PgBouncer(db.cluster.server.settings["port"], size=2, round_robin=True) as bouncer,
        pyfence.Fence(bouncer.url(db.url("app"))) as fence,
        fence.lease("report:2", ttl=0.6) as own,
    ):
        with own.transaction() as conn:
            conn.execute("update public.report set body = 'new' where id = 2")
            conn.execute("select pg_sleep(1)")
            assert not own.lost.is_set(), "renewals go by on the second connection to the server"
        own.raise_if_lost()


def test_several_clients_take_turns_on_one_connection(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    """A holder's transaction keeps the connection; the others come after it, without its claim."""
    with connect(bouncer, db) as holder, connect(bouncer, db) as legacy:
        holder.execute(PRESENT, lease.parameters)
        waiting = db.in_thread(legacy.execute, STEAL)
        holder.execute(UPDATE)
        assert not waiting.done()
        holder.commit()
        with sqlstate("LF004"):
            waiting.result(10)
        legacy.rollback()
    assert db.execute("select body from public.report where id = 1") == [("new",)]


# -- the async client --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
def test_the_async_clients_calls_survive_a_new_backend_for_each(db: Database, lease: Lease, kind: str) -> None:
    """Every feature, in turn, and cancellations in between: nothing is prepared, left open, or left to the next one."""
    if PROGRAM is None:
        pytest.skip("there is no program pgbouncer (Debian, Ubuntu: apt install pgbouncer)")
    seen: set[int] = set()

    async def turn(fence: pyfence.AsyncFence, number: int) -> None:
        async with fence.lease("report:2", ttl=30, wait=10) as own:
            for _ in range(1 + number % 2):  # so that no step always meets the same backend
                await own.renew()
            async with own.transaction(isolation="REPEATABLE READ") as conn:
                seen.add((await (await conn.execute("select pg_backend_pid()", prepare=False)).fetchone() or [0])[0])
                await conn.execute(
                    "update public.report set body = %s where id = 2", (f"turn {number}",), prepare=False
                )
            assert await own.fenced_update("public.report", {"id": 2}, {"body": "new"}) == 1
            with pytest.raises(pyfence.WrongResource):
                await own.fenced_update("public.report", {"id": 1}, {"body": "stolen"})

    async def slow(fence: pyfence.AsyncFence) -> None:
        async with fence.lease("report:3", ttl=30) as own, own.transaction() as conn:
            await conn.execute("select pg_sleep(30)")

    async def main(url: str) -> None:
        async with async_source(kind, url, size=2) as where, pyfence.AsyncFence(where) as fence:
            for number in range(17):
                await turn(fence, number)
                if number % 8 == 0:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(slow(fence), 0.2)
            assert (await fence.acquire("report:3")).token

    with (
        PgBouncer(db.cluster.server.settings["port"], size=3, round_robin=True) as bouncer,
        connect(bouncer, db) as one,
        connect(bouncer, db) as two,
        connect(bouncer, db) as three,
    ):
        for conn in (one, two, three):  # more backends than the client needs, so that its calls go round
            conn.execute("select 1")
        for conn in (one, two, three):
            conn.rollback()
        asyncio.run(main(bouncer.url(db.url("app"))))
        assert len(seen) > 1, "the connection to the server changed"
        assert not [state for _, state in backends(db) if state and "transaction" in state]
    prepared = "select count(*) from pg_prepared_statements"
    assert db.execute(prepared) == [(0,)]


def test_a_frozen_holder_behind_it_is_ended_too(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    with pyfence.Fence(bouncer.url(db.url("app"))) as fence:
        own = fence.acquire("report:2", ttl=0.6)
        with pytest.raises(psycopg.Error), own.transaction() as conn:
            wait_until(lambda: not idle_in_transaction(db), "the server has ended it", deadline=5)
            conn.execute("update public.report set body = 'late' where id = 2")
        assert fence.acquire("report:2", wait=5).token > own.token


def test_a_call_that_is_given_up_is_cancelled_through_it(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    with pyfence.Fence(bouncer.url(db.url("app")), timeout=0.5) as fence:
        own = fence.acquire("report:2", ttl=60)
        blocker = db.connect("app_owner")
        blocker.execute("lock table public.report in access exclusive mode")
        with pytest.raises(psycopg.errors.QueryCanceled):
            own.fenced_update("public.report", {"id": 2}, {"body": "late"})
        blocker.rollback()
        assert own.fenced_update("public.report", {"id": 2}, {"body": "in time"}) == 1


def test_what_needs_a_direct_connection_is_refused(bouncer: PgBouncer, db: Database, lease: Lease) -> None:
    """A claim in the start-up settings belongs to a connection; PgBouncer refuses it, or the guard does."""
    with pyfence.Fence(bouncer.url(db.url("app"))) as fence:
        own = fence.acquire("report:2")
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(bouncer.url(db.url("app")), options=own.libpq_options())
    with (
        PgBouncer(db.cluster.server.settings["port"], more="ignore_startup_parameters = options") as lax,
        psycopg.connect(lax.url(db.url("app")), options=own.libpq_options()) as conn,
        sqlstate("LF004"),
    ):
        conn.execute("update public.report set body = 'new' where id = 2")
