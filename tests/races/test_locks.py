"""Every call that changes a lease locks its row before it looks: what it has read cannot change under it."""

from __future__ import annotations

from typing import Any

import pytest
from guards.scene import Lease, acquire, ask, expire, look_and_wait, present, release, renew
from harness import SUPERUSER, Connection, Database, sqlstate
from races.writer import write


def take_over(db: Database, lease: Lease) -> tuple[Connection, Any]:
    """A transaction, still open, in which the lease has run out and somebody else has got it."""
    taker = db.connect("fence_owner")
    taker.execute("update fence._lease set expires_at = clock_timestamp() where resource = %s", (lease.resource,))
    answer = ask(taker, lease.resource, "1 h")
    assert answer.granted
    return taker, answer


def newest(db: Database) -> tuple[Any, ...]:
    return db.execute("select token, state, expires_at from fence.leases where resource = 'report:1'")[0]


def test_a_renewal_that_waited_for_a_takeover_is_stale(db: Database, lease: Lease) -> None:
    taker, answer = take_over(db, lease)
    old = db.connect("app")
    waiting = db.start_blocked(old, "select fence.renew(%s, %s, %s, '5 s')", lease.parameters, by=taker)
    taker.commit()
    with sqlstate("LF001"):
        waiting.result(10)
    old.rollback()
    assert newest(db) == (answer.token, "held", answer.expires_at), "the successor's lease is as it was"


def test_a_release_that_waited_for_a_takeover_touches_nobody(db: Database, lease: Lease) -> None:
    taker, answer = take_over(db, lease)
    old = db.connect("app")
    waiting = db.start_blocked(old, "select fence.release(%s, %s, %s)", lease.parameters, by=taker)
    taker.commit()
    assert waiting.result(10).fetchall() == [(False,)]
    old.commit()
    assert newest(db) == (answer.token, "held", answer.expires_at)


def test_a_revocation_that_waited_for_a_takeover_records_whom_it_ended(db: Database, lease: Lease) -> None:
    taker, answer = take_over(db, lease)
    admin = db.connect("app_owner")
    waiting = db.start_blocked(admin, "select fence.revoke('report:1', 'test')", by=taker)
    taker.commit()
    assert waiting.result(10).fetchall() == [(True,)]
    admin.commit()
    assert newest(db)[:2] == (answer.token, "closed")
    last = "select token from fence.history where event = 'closed' order by id desc limit 1"
    assert db.execute(last) == [(answer.token,)]


def test_a_request_does_not_wait_for_a_release_in_flight(db: Database, lease: Lease) -> None:
    """The lease is over and its row is held by a change that is not a writer: answered at once."""
    expire(db, "report:1")
    releasing = db.connect("app")
    assert releasing.execute("select fence.release(%s, %s, %s)", lease.parameters).fetchall() == [(True,)]
    assert ask(db, "report:1").reason == "draining"
    releasing.commit()
    assert ask(db, "report:1").granted


@pytest.mark.parametrize("writes", [False, True], ids=["free", "a holder writes"])
def test_a_request_that_comes_too_late_leaves_the_lease_unlocked(db: Database, lease: Lease, writes: bool) -> None:
    """It has seen the lease expired, and has it locked only when it is held again."""
    writer, gate, late = db.connect("app"), db.connect(SUPERUSER), db.connect("app")
    if writes:
        present(writer, lease)
    expire(db, "report:1")
    look_and_wait(db, "report:1")
    gate.execute("select pg_advisory_lock(1)")
    late.execute("set pyfence_test.wait = 'on'")
    waiting = db.start_blocked(late, "select granted, reason from fence.acquire('report:1')", by=gate)
    db.execute("update fence._lease set expires_at = clock_timestamp() + interval '1 h'", user="fence_owner")
    gate.execute("select pg_advisory_unlock(1)")
    assert waiting.result(10).fetchall() == [(False, "held")]
    renew(db, lease)
    present(db.connect("app"), lease)
    late.commit()


def test_a_closed_lease_is_not_closed_again_while_its_holder_is_waited_for(db: Database, lease: Lease) -> None:
    writer = db.connect("app")
    present(writer, lease)
    expire(db, "report:1")
    for _ in range(3):
        assert ask(db, "report:1").reason == "draining"
    assert db.execute("select count(*) from fence.history where event = 'closed'") == [(1,)]
    writer.rollback()


def test_a_grant_says_whom_it_takes_over_from_and_nobody_after_a_release(db: Database, lease: Lease) -> None:
    last = (
        "select detail -> 'took_over' ->> 'token' from fence.history where event = 'granted' order by id desc limit 1"
    )
    assert db.execute(last) == [(None,)]
    expire(db, "report:1")
    second = acquire(db, "report:1")
    assert db.execute(last) == [(str(lease.token),)]
    release(db, second)
    acquire(db, "report:1")
    assert db.execute(last) == [(None,)]


def test_renewals_of_many_pass_by_a_row_that_is_being_changed(db: Database, lease: Lease) -> None:
    taker, _ = take_over(db, lease)
    arrays = [[value] for value in lease.parameters]
    ((code,),) = db.execute("select code from fence.renew_all(%s, %s, %s, null)", arrays, user="app")
    assert code == "55P03"
    taker.rollback()
    ((code,),) = db.execute("select code from fence.renew_all(%s, %s, %s, null)", arrays, user="app")
    assert code is None


def test_what_the_guard_has_locked_stays_until_the_end(db: Database, lease: Lease) -> None:
    """Presenting in a savepoint that is taken back leaves no lock; writing again takes it again."""
    connection = db.connect("app")
    connection.execute("savepoint a")
    present(connection, lease)
    connection.execute("rollback to savepoint a")
    expire(db, "report:1")
    assert ask(db, "report:1").granted
    with sqlstate("LF004"):
        write(connection)
