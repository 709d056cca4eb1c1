"""Transactions whose snapshot is older than what happened to their lease: 40001 where they cannot know, and no loop."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, contents, expire, forge, present, release, renew, revoke, supersede
from harness import Database, sqlstate
from races.writer import UPDATE, body, snapshots, write


@snapshots
@pytest.mark.parametrize("show", [present, forge], ids=["present", "guard alone"])
@pytest.mark.parametrize(
    "statement", ["insert into public.report values (1, 'x') on conflict do nothing", UPDATE % "'A'"]
)
def test_an_old_snapshot_is_not_believed(
    db: Database, lease: Lease, level: psycopg.IsolationLevel, show: Any, statement: str
) -> None:
    """40001, so that the retry sees the truth; and the retry ends in LF001, not in a loop."""
    db.execute("create table public.free (id int)")
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.free")
    supersede(db, lease)
    with sqlstate("40001"):
        show(a, lease)
        a.execute(UPDATE, ("A",))
    a.rollback()
    for _ in range(2):
        with sqlstate("LF001"):
            show(a, lease)
            a.execute(UPDATE, ("A",))
        a.rollback()
    assert body(db) == "old"


@snapshots
def test_a_new_row_conflicts_with_nothing_and_is_refused_all_the_same(
    db: Database, lease: Lease, level: psycopg.IsolationLevel
) -> None:
    db.execute("create table public.entry (id int generated always as identity primary key, report int)")
    db.execute("select fence.protect('public.entry', 'report:{report}')")
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.report")
    supersede(db, lease)
    with sqlstate("40001"):
        forge(a, lease)
        a.execute("insert into public.entry (report) values (1)")
    a.rollback()
    assert contents(db, "public.entry") == []


CALLS = {
    "release": "select fence.release(%s, %s, %s)",
    "revoke": "select fence.revoke(%s, %s || %s)",
    "evict": "select fence.evict(%s), %s::text, %s::text",
}


@snapshots
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_no_answer_is_given_from_before_the_grant(
    db: Database, level: psycopg.IsolationLevel, call: str, known: bool
) -> None:
    """And asking again, with a newer snapshot, is answered."""
    if known:
        release(db, acquire(db, "x"))
    asking = db.connect("app" if call == "release" else "app_owner", isolation=level)
    asking.execute("select 1")
    lease = acquire(db, "x")
    with sqlstate("40001"):
        asking.execute(CALLS[call], lease.parameters)
    asking.rollback()
    assert len(asking.execute(CALLS[call], lease.parameters).fetchall()) == 1
    asking.commit()
    assert db.execute("select state from fence.leases") == [("held" if call == "evict" else "closed",)]


@snapshots
@pytest.mark.parametrize("call", CALLS)
def test_who_is_no_holder_locks_and_leaves_nothing_at_any_level(
    db: Database, level: psycopg.IsolationLevel, call: str
) -> None:
    lease, asking = acquire(db, "x"), db.connect("app" if call == "release" else "app_owner", isolation=level)
    for name in ("x", "unknown"):
        if (name, call) != ("x", "revoke"):
            asking.execute(CALLS[call], (name, 1, "guess"))
    renew(db, lease)
    asking.commit()
    assert db.execute("select resource from fence.leases") == [("x",)]


@snapshots
def test_enter_is_refused_by_no_lease_that_was_released(db: Database, level: psycopg.IsolationLevel) -> None:
    lease, job = acquire(db, "x"), db.connect("app", isolation=level)
    with sqlstate("LF012"):
        job.execute("select fence.enter('x')")
    job.rollback()
    job.execute("select 1")
    release(db, lease)
    with sqlstate("40001"):
        job.execute("select fence.enter('x')")
    job.rollback()
    job.execute("select fence.enter('x')")


@snapshots
@pytest.mark.parametrize("renewals", [1, 3])
def test_an_old_snapshot_survives_renewals(
    db: Database, lease: Lease, level: psycopg.IsolationLevel, renewals: int
) -> None:
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.report")
    for _ in range(renewals):
        renew(db, lease)
    present(a, lease)
    renew(db, lease)
    assert write(a) == 1
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    a.commit()


@snapshots
def test_an_old_snapshot_may_finish_after_a_revoke_and_acquire_waits(
    db: Database, lease: Lease, level: psycopg.IsolationLevel
) -> None:
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.report")
    renew(db, lease)
    assert revoke(db, "report:1")
    present(a, lease)
    assert ask(db, "report:1").reason == "draining"
    write(a)
    a.commit()
    assert body(db) == "A"
    with sqlstate("LF001"):
        present(a, lease)
    a.rollback()
    assert ask(db, "report:1").granted


@snapshots
def test_a_lease_that_looks_expired_may_have_been_renewed(
    db: Database, report: str, level: psycopg.IsolationLevel
) -> None:
    """A renewal newer than the snapshot: 40001, and the retry is accepted. Never LF002 for a holder in time."""
    lease = acquire(db, "report:1", "400 ms")
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.report")
    db.execute("select fence.renew(%s, %s, %s, '1 h')", lease.parameters, user="app")
    a.execute("select pg_sleep(0.45)")
    present(a, lease)
    with sqlstate("40001"):
        write(a)
    a.rollback()
    present(a, lease)
    assert write(a) == 1


@snapshots
def test_a_lease_that_has_expired_is_expired_in_an_old_snapshot_too(
    db: Database, lease: Lease, level: psycopg.IsolationLevel
) -> None:
    expire(db, "report:1")
    a = db.connect("app", isolation=level)
    present(a, lease)
    with sqlstate("LF002"):
        write(a)


@snapshots
@pytest.mark.parametrize("show", [present, forge], ids=["present", "guard alone"])
def test_a_resource_first_acquired_after_the_snapshot(
    db: Database, report: str, level: psycopg.IsolationLevel, show: Any
) -> None:
    a = db.connect("app", isolation=level)
    a.execute("select 1 from public.report")
    lease = acquire(db, "report:1")
    with sqlstate("40001"):
        show(a, lease)
        write(a)
    a.rollback()
    show(a, lease)
    assert write(a) == 1


@snapshots
@pytest.mark.parametrize("call", ["present", "renew"])
def test_a_resource_that_nobody_ever_acquired_is_unknown_and_no_loop(
    db: Database, report: str, level: psycopg.IsolationLevel, call: str
) -> None:
    a = db.connect("app", isolation=level)
    for _ in range(3):
        a.execute("select 1 from public.report")
        with sqlstate("LF006"):
            a.execute(f"select fence.{call}('report:9', 5, 'x')")
        a.rollback()
    assert db.execute("select * from fence._lease", user="fence_owner") == []
    assert acquire(db, "report:9").token > 0


@snapshots
def test_the_calls_on_leases_answer_40001_to_an_old_snapshot(
    db: Database, lease: Lease, level: psycopg.IsolationLevel
) -> None:
    """They change rows that the snapshot cannot see: no second grant, no false answer."""
    old = [db.connect("app", isolation=level) for _ in range(4)]
    for connection in old:
        connection.execute("select 1 from public.report")
    supersede(db, lease)
    expire(db, "report:1")
    acquire(db, "report:new")
    for connection, name in zip(old, ("report:new", "report:1"), strict=False):
        if name == "report:1":
            # the snapshot shows the first lease, live: an answer, if an old one
            assert not ask(connection, name).granted
        else:
            with sqlstate("40001"):
                ask(connection, name)
    with sqlstate("40001"):
        renew(old[2], lease)
    with sqlstate("40001"):
        old[3].execute("select fence.release(%s, %s, %s)", lease.parameters)
