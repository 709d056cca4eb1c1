"""Leases on names that are somebody else's: acquired, hoarded, or kept in a transaction that never ends."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import acquire, ask, expire, protect, release
from harness import SUPERUSER, Connection, Database, sqlstate


def allow(db: Database, pattern: str, most: int | None = None) -> None:
    db.execute("select fence.allow('app', %s, %s)", (pattern, most))


def by_hand(connection: Connection, resource: str) -> Any:
    """A hostile client's acquire: in a transaction that stays open and has taken its own bound away."""
    ((granted,),) = connection.execute("select granted from fence.acquire(%s, '1 s')", (resource,)).fetchall()
    connection.execute("set idle_in_transaction_session_timeout = 0")
    return granted


def test_without_rules_a_client_may_take_any_name_and_with_rules_only_its_own(db: Database) -> None:
    release(db, acquire(db, "tenant:theirs"))
    allow(db, "tenant:mine*")
    for call in ("acquire('tenant:theirs')", "enter('tenant:theirs')"):
        with sqlstate("42501"):
            db.execute(f"select fence.{call}", user="app")
    acquire(db, "tenant:mine:1")


def test_a_rule_over_rows_lets_nobody_end_them_all(db: Database) -> None:
    """A covering lease ends every row's: it has a name of its own, which the rule has to allow."""
    db.execute("create table public.t (id int primary key)")
    protect(db, "public.t", "row:{id}", p_covering="all rows")
    theirs = db.execute("select granted from fence.acquire('row:1')")
    assert theirs == [(True,)]
    allow(db, "row:*")
    with sqlstate("42501"):
        ask(db, "all rows")
    assert db.execute("select state from fence.leases where resource = 'row:1'") == [("held",)]


def test_a_hoarder_is_stopped_at_its_number_and_the_others_go_on(db: Database) -> None:
    allow(db, "job:*", 5)
    for number in range(5):
        acquire(db, f"job:{number}")
    for name in ("job:5", "job:6"):
        with sqlstate("53400"):
            ask(db, name)
    assert db.execute("select granted from fence.acquire('job:5')") == [(True,)]


def test_transactions_of_one_role_do_not_wait_for_each_other_at_a_rule_without_a_number(db: Database) -> None:
    allow(db, "job:*")
    allow(db, "one:*", 1)
    db.execute("select fence.acquire('job:1'), fence.acquire('job:2'), fence.acquire('one:1')")
    first, second = db.connect("app"), db.connect("app")
    first.execute("set lock_timeout = '10ms'")
    second.execute("set lock_timeout = '10ms'")
    first.execute("select fence.enter('job:3')")
    second.execute("select fence.enter('job:4')")
    first.commit()
    second.commit()


def test_at_a_rule_with_a_number_they_take_turns(db: Database) -> None:
    """The last one is not given twice; so a transaction that stays open holds up its own role, and no other."""
    allow(db, "job:*", 9)
    job, other = db.connect("app"), db.connect("app", autocommit=True)
    job.execute("select fence.enter('job:1')")
    with sqlstate("55P03"):
        other.execute("select fence.acquire('job:2')")
    assert db.execute("select granted from fence.acquire('job:2')") == [(True,)]
    job.commit()
    other.execute("select fence.acquire('job:3')")


def test_a_lease_that_was_entered_counts_no_longer_than_its_transaction(db: Database) -> None:
    allow(db, "job:*", 1)
    job = db.connect("app")
    job.execute("select fence.enter('job:1')")
    with sqlstate("53400"), job.transaction():
        job.execute("select fence.enter('job:2')")
    job.commit()
    job.execute("select fence.enter('job:2')")
    job.commit()


def test_old_snapshots_count_every_lease(db: Database, isolation: psycopg.IsolationLevel) -> None:
    """Many transactions that began while nothing was held, each of which takes one."""
    allow(db, "job:*", 1)
    sessions = [db.connect("app", isolation=isolation) for _ in range(3)]
    for session in sessions:
        session.execute("select 1")
    if isolation == psycopg.IsolationLevel.READ_COMMITTED:
        with sessions.pop() as first:
            acquire(first, "job:0")
    for number, session in enumerate(sessions, 1):
        with sqlstate("53400" if isolation == psycopg.IsolationLevel.READ_COMMITTED else "LF010"):
            ask(session, f"job:{number}")


def test_a_lease_that_is_being_renewed_counts(db: Database) -> None:
    """It looks expired to everybody else while its holder keeps the renewal open."""
    allow(db, "job:*", 1)
    acquire(db, "job:1")
    expire(db, "job:1")
    renewing, asking = db.connect("fence_owner"), db.connect("app", autocommit=True)
    renewing.execute("update fence._lease set expires_at = now() + interval '1 h' where resource = 'job:1'")
    with sqlstate("53400"):
        ask(asking, "job:2")
    renewing.rollback()
    assert ask(asking, "job:2").granted


def test_a_rule_that_is_taken_away_while_somebody_asks_counts_no_more(db: Database) -> None:
    allow(db, "job:*", 1)
    owner, asking = db.connect("app_owner"), db.connect("app")
    owner.execute("select fence.allow('app', 'other:*', 1), fence.allow('app', 'job:*', 0)")
    waiting = db.start_blocked(asking, "select fence.acquire('job:1')", by=owner)
    owner.commit()
    with sqlstate("42501"):
        waiting.result(10)


def test_a_client_that_never_commits_keeps_its_name_and_nothing_else(db: Database) -> None:
    """Nobody waits for a name that was used before; an administrator sees who it is and ends the session."""
    release(db, acquire(db, "used"))
    squatter = db.connect("app")
    assert by_hand(squatter, "used")
    assert ask(db, "used").reason == "draining"
    acquire(db, "another")
    seen = db.execute("select pid, role::text from fence.in_flight", user=SUPERUSER)
    assert seen == [(squatter.info.backend_pid, "app")]
    db.cluster.admin.execute("select pg_terminate_backend(%s, 5000)", (squatter.info.backend_pid,))
    acquire(db, "used")


@pytest.mark.parametrize("user", ["app", "monitor", "app_owner"])
def test_nobody_ends_the_lease_of_another_without_its_secret(db: Database, user: str) -> None:
    """The token is no secret. release answers false, renew refuses, and neither locks anything."""
    lease = acquire(db, "x")
    thief = db.connect(user)
    if user == "monitor":
        with sqlstate("42501"):
            thief.execute("select fence.release('x', %s, 'guess')", (lease.token,))
        return
    ((released,),) = thief.execute("select fence.release('x', %s, 'guess')", (lease.token,)).fetchall()
    assert released is False
    with sqlstate("LF006"), thief.transaction():
        thief.execute("select fence.renew('x', %s, 'guess')", (lease.token,))
    for token in (lease.token + 1, 2**63 - 1, 0, -1):
        with sqlstate("LF001" if token == 0 else "LF006"), thief.transaction():
            thief.execute("select fence.present('x', %s, 'guess')", (token,))
    holder = db.connect("app", autocommit=True)
    holder.execute("set lock_timeout = '10ms'")
    holder.execute("select fence.renew(%s, %s, %s)", lease.parameters)
    assert release(db, lease)
    assert acquire(db, "x").token > lease.token


# -- turns -----------------------------------------------------------------------------------------------------------

IN_TURN = "select granted, reason, ticket from fence._acquire_in_turn('job', '30 s', 'me', %s, null)"


def test_who_may_not_have_a_name_does_not_queue_for_it(db: Database) -> None:
    """Also not where somebody else is first, and nobody would have looked at the rules yet."""
    release(db, acquire(db, "job"))
    waiting = "insert into fence._waiter (resource, due_at) values ('job', now() + interval '1 minute')"
    db.execute(waiting, user="fence_owner")
    allow(db, "other:*")
    thief = db.connect("app", autocommit=True)
    for ticket in (0, -1, 1, 2**62):
        with sqlstate("42501"):
            thief.execute(IN_TURN, (ticket,))
    assert db.execute("select count(*) from fence._waiter", user="fence_owner") == [(1,)]


def test_a_made_up_place_in_the_queue_is_a_turn_and_no_more(db: Database) -> None:
    """Turns are a courtesy among clients that may have the name: who jumps the queue gets a lease as anybody does."""
    lease = acquire(db, "job")
    thief = db.connect("app", autocommit=True)
    ((granted, reason, _),) = thief.execute(IN_TURN, (-1,)).fetchall()
    assert (granted, reason) == (False, "held")
    release(db, lease)
    ((granted, _, _),) = thief.execute(IN_TURN, (-1,)).fetchall()
    assert granted
    assert ask(db, "job").reason == "held"
    assert db.execute("select count(*) from fence._waiter", user="fence_owner") == [(0,)]
