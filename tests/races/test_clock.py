"""Time is what the clock says when a call decides, never when its transaction began."""

from __future__ import annotations

from datetime import timedelta

import pytest
from guards.scene import Lease, acquire, ask, expire, present, protect, release
from harness import Connection, Database, sqlstate


def begin_and_wait(db: Database, seconds: float = 0.25, user: str = "app") -> Connection:
    """A transaction that is `seconds` old."""
    connection = db.connect(user)
    connection.execute("select now()")
    connection.execute("select pg_sleep(%s)", (seconds,))
    return connection


@pytest.mark.parametrize("known", [False, True], ids=["new name", "free again"])
def test_a_grant_lasts_from_when_it_is_made(db: Database, report: str, known: bool) -> None:
    if known:
        release(db, acquire(db, "report:1"))
    connection = begin_and_wait(db)
    ((acquired, expires, now),) = connection.execute(
        "select l.acquired_at, a.expires_at, clock_timestamp() from fence.acquire('report:1', '200 ms') a, "
        "lateral (select now() as acquired_at) l"
    ).fetchall()
    assert expires > acquired + timedelta(milliseconds=400), "not 200 ms from the beginning of the transaction"
    assert expires <= now + timedelta(milliseconds=200)
    connection.commit()
    since = "select acquired_at - (expires_at - ttl) from fence.leases where resource = 'report:1'"
    assert db.execute(since, user="monitor") == [(timedelta(0),)]


def test_how_long_to_wait_counts_from_when_it_is_asked(db: Database, lease: Lease) -> None:
    connection = begin_and_wait(db)
    ((retry, left),) = connection.execute(
        "select retry_in, expires_at - now() from fence.acquire('report:1')",
    ).fetchall()
    assert retry <= left - timedelta(milliseconds=250)


def test_an_expired_lease_is_not_revived_by_an_older_transaction(db: Database, report: str) -> None:
    lease = acquire(db, "report:1", "200 ms")
    one, many = (begin_and_wait(db, 0) for _ in range(2))
    db.execute("select pg_sleep(0.25)")
    with sqlstate("LF002"):
        one.execute("select fence.renew(%s, %s, %s)", lease.parameters)
    arrays = [[value] for value in lease.parameters]
    assert many.execute("select code from fence.renew_all(%s, %s, %s, null)", arrays).fetchall() == [("LF002",)]


def test_a_renewal_lasts_from_when_it_is_made(db: Database, lease: Lease) -> None:
    arrays = [[value] for value in lease.parameters]
    for call, values in (
        ("select fence.renew(%s, %s, %s, '1 s') - now()", lease.parameters),
        ("select expires_at - now() from fence.renew_all(%s, %s, %s, '1 s')", arrays),
    ):
        connection = begin_and_wait(db)
        ((left,),) = connection.execute(call, values).fetchall()
        assert left >= timedelta(seconds=1.25)
        connection.rollback()


def test_events_and_writes_are_remembered_when_they_happened(db: Database, lease: Lease) -> None:
    protect(db, "public.report", "report:{id}", p_writes="sequenced")
    connection = begin_and_wait(db)
    ((began,),) = connection.execute("select now()").fetchall()
    connection.execute("select fence.present(%s, %s, %s, 1)", lease.parameters)
    connection.execute("update public.report set body = 'new' where id = 1")
    connection.execute("select fence.acquire('report:2')")
    connection.commit()
    for table, condition in (("_accepted", "true"), ("_history", "resource = 'report:2'")):
        ((at,),) = db.execute(f"select at from fence.{table} where {condition}", user="fence_owner")
        assert at >= began + timedelta(milliseconds=250), table
    later = begin_and_wait(db)
    ((began,),) = later.execute("select now()").fetchall()
    later.execute("select fence.present(%s, %s, %s, 2)", lease.parameters)
    later.execute("update public.report set body = 'newer' where id = 1")
    later.commit()
    ((at,),) = db.execute("select at from fence._accepted", user="fence_owner")
    assert at >= began + timedelta(milliseconds=250)


def test_a_token_is_of_the_moment_it_is_granted(db: Database, report: str) -> None:
    """So that one from a transaction that began before a restore is not below those from after it."""
    early = begin_and_wait(db, 0)
    db.execute("select pg_sleep(0.25)")
    other = acquire(db, "report:2")
    assert acquire(early, "report:1").token >= other.token


def test_an_older_transaction_does_not_get_what_is_held_nor_miss_what_is_free(db: Database, report: str) -> None:
    lease = acquire(db, "report:1", "200 ms")
    early = begin_and_wait(db, 0)
    assert ask(early, "report:1").reason == "held"
    db.execute("select pg_sleep(0.25)")
    assert ask(early, "report:1").granted
    early.rollback()
    expire(db, "report:1")
    connection = db.connect("app")
    present(connection, lease)
    with sqlstate("LF002"):
        connection.execute("update public.report set body = 'new' where id = 1")
