"""Through a real PgBouncer in transaction mode, where one connection serves everybody in turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
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
