"""Writers against takeovers: a token is granted only when no older one can commit any more."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, expire, forge, present, release, renew, revoke, supersede
from harness import Database, sqlstate
from races.writer import SNAPSHOTS, body, write


@pytest.mark.parametrize("stage", ["presented", "written"])
@pytest.mark.parametrize("end", ["expire", "revoke", "release"])
def test_no_newer_token_before_the_older_writers_commit(
    db: Database, lease: Lease, stage: str, end: str, isolation: psycopg.IsolationLevel
) -> None:
    a = db.connect("app", isolation=isolation)
    present(a, lease)
    if stage == "written":
        write(a)
    {
        "expire": lambda: expire(db, "report:1"),
        "revoke": lambda: revoke(db, "report:1"),
        "release": lambda: release(db, lease),
    }[end]()
    for _ in range(3):
        answer = ask(db, "report:1")
        assert (answer.granted, answer.reason, answer.token, answer.secret) == (False, "draining", lease.token, None)
    a.commit()
    assert body(db) == ("A" if stage == "written" else "old")
    b = acquire(db, "report:1")
    assert b.token > lease.token
    with sqlstate("LF001"):
        present(a, lease)


def test_the_newer_tokens_writes_come_after_the_older_ones(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    a, b = db.connect("app", isolation=isolation), db.connect("app", isolation=isolation)
    present(a, lease)
    write(a, "A")
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    a.commit()
    newer = acquire(db, "report:1")
    present(b, newer)
    write(b, "B")
    b.commit()
    with sqlstate("LF001"):
        present(a, lease)
    a.rollback()
    forge(a, lease)
    with sqlstate("LF001"):
        write(a, "late")
    assert body(db) == "B"


def test_a_late_write_is_refused_although_the_newer_owner_has_written_nothing(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    """The boundary that a remembered highest token cannot see."""
    supersede(db, lease)
    a = db.connect("app", isolation=isolation)
    for show in (present, forge):
        with sqlstate("LF001"):
            show(a, lease)
            write(a)
        a.rollback()
    assert body(db) == "old"


def test_a_writer_that_meets_a_takeover_in_flight_waits_and_is_refused(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    expire(db, "report:1")
    a, b = db.connect("app", isolation=isolation), db.connect("app")
    assert ask(b, "report:1").granted
    waiting = db.start_blocked(a, "select fence.present(%s, %s, %s)", lease.parameters, by=b)
    b.commit()
    with sqlstate("LF001" if isolation == psycopg.IsolationLevel.READ_COMMITTED else "40001"):
        waiting.result(10)
    a.rollback()
    with sqlstate("LF001"):
        present(a, lease)


def test_a_writer_that_meets_a_takeover_that_fails_goes_on(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    expire(db, "report:1")
    a, b = db.connect("app", isolation=isolation), db.connect("app")
    assert ask(b, "report:1").granted
    waiting = db.start_blocked(a, "select fence.present(%s, %s, %s)", lease.parameters, by=b)
    b.rollback()
    waiting.result(10)
    assert a.execute("update public.lenient set body = 'A' where id = 1").rowcount == 1
    with sqlstate("LF002"):
        write(a)


def test_a_claim_that_only_the_guard_sees_is_locked_by_the_guard(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    """Without present the lock comes with the first write, and from then on it holds."""
    a = db.connect("app", isolation=isolation)
    forge(a, lease)
    write(a)
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    a.commit()
    assert ask(db, "report:1").granted


def test_a_takeover_waits_for_every_writer_and_not_only_for_the_first(db: Database, lease: Lease) -> None:
    writers = [db.connect("app", isolation=level) for level in (None, *SNAPSHOTS)]
    for writer in writers:
        present(writer, lease)
    expire(db, "report:1")
    for writer in writers:
        assert ask(db, "report:1").reason == "draining"
        writer.rollback()
    assert ask(db, "report:1").granted


def test_a_busy_overlapping_crowd_cannot_starve_the_taker(db: Database, lease: Lease) -> None:
    """Old writers hand the lease row to each other without a gap; the first request closes it to new ones."""
    writers = [db.connect("app") for _ in range(3)]
    present(writers[0], lease)
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    for newcomer in writers[1:] * 3:
        with sqlstate("LF001"):
            present(newcomer, lease)
        newcomer.rollback()
    writers[0].rollback()
    assert ask(db, "report:1").granted


def test_without_a_request_an_overlapping_crowd_goes_on(db: Database, lease: Lease) -> None:
    """until_superseded: nobody asked, so nobody is refused."""
    expire(db, "report:1")
    first, second = db.connect("app"), db.connect("app")
    update = "update public.lenient set body = 'A' where id = 1"
    present(first, lease)
    first.execute(update)
    present(second, lease)
    first.commit()
    second.execute(update)
    assert ask(db, "report:1").reason == "draining"
    with sqlstate("LF001"), second.transaction():
        second.execute(update)
    second.commit()
    with sqlstate("LF001"):
        present(first, lease)


def test_a_request_that_is_rolled_back_closes_nothing(db: Database, lease: Lease) -> None:
    a, b = db.connect("app"), db.connect("app")
    present(a, lease)
    expire(db, "report:1")
    assert ask(b, "report:1").reason == "draining"
    b.rollback()
    present(db.connect("app"), lease)


def test_a_request_for_a_live_lease_touches_nothing(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    a = db.connect("app", isolation=isolation)
    present(a, lease)
    before = db.execute("select xmin, l.* from fence._lease l", user="fence_owner")
    for connection in (db, db.connect("app")):
        answer = ask(connection, "report:1")
        assert (answer.reason, answer.token, answer.owner, answer.secret) == ("held", lease.token, "tester", None)
        assert answer.retry_in.total_seconds() > 20
    assert db.execute("select xmin, l.* from fence._lease l", user="fence_owner") == before
    renew(db, lease)
    write(a)
    a.commit()
