"""What each part of the lock is for: without it, these races let a stale write in.

The same story on the schema as it is and on copies that lack one part. A test of the copy fails when the part was not
needed after all, so that nobody keeps, or loses, a mechanism by mistake.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, expire, forge, present
from harness import Database
from races.writer import body, snapshots, write


def without(db: Database, function: str, part: str, instead: str) -> None:
    """Replace a part of a private function's source, in this database alone."""
    ((source,),) = db.execute(
        "select pg_get_functiondef(p.oid) from pg_proc p where pronamespace = 'fence'::regnamespace and proname = %s",
        (function,),
        user="fence_owner",
    )
    assert source.count(part) == 1, f"{function} does not say {part!r} once"
    db.execute(source.replace(part, instead).replace("%", "%%"), user="fence_owner")


def drop_the_key(db: Database) -> None:
    db.execute("alter table fence._lease drop constraint _lease_resource_token_key", user="fence_owner")


def read_without_lock(db: Database) -> None:
    without(db, "_check_lease", "for key share of l", "")


def grant_like_a_renewal(db: Database) -> None:
    """acquire takes the lease FOR NO KEY UPDATE, as if the token were any column."""
    without(db, "acquire", "for update skip locked", "for no key update skip locked")


def drop_the_key_and_grant_like_a_renewal(db: Database) -> None:
    drop_the_key(db)
    grant_like_a_renewal(db)


def takeover_before_the_commit(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> bool:
    """Is a newer token granted while a writer of the older one is open, and does its write land after?"""
    a = db.connect("app", isolation=isolation)
    present(a, lease)
    write(a, "stale")
    expire(db, "report:1")
    granted = bool(ask(db, "report:1").granted)
    a.commit()
    return granted and body(db) == "stale"


def old_snapshot(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> bool:
    """Does a write land whose snapshot is older than the newer token?"""
    a = db.connect("app", isolation=isolation)
    a.execute("select 1 from public.report")
    expire(db, "report:1")
    acquire(db, "report:1")
    try:
        forge(a, lease)
        a.execute("update public.lenient set body = 'stale' where id = 1")
        a.commit()
    except psycopg.DatabaseError:
        a.rollback()
    return db.execute("select body from public.lenient where id = 1") == [("stale",)]


def test_the_lock_as_it_is_lets_no_stale_write_in(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    assert not takeover_before_the_commit(db, lease, isolation)


def test_an_old_snapshot_lets_no_stale_write_in(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> None:
    assert not old_snapshot(db, lease, isolation)


FATAL = pytest.mark.parametrize(
    "ablate", [drop_the_key_and_grant_like_a_renewal, read_without_lock], ids=["no key", "no lock"]
)


@FATAL
def test_without_it_a_takeover_overtakes_an_open_writer(
    db: Database, lease: Lease, ablate: Callable[[Database], None], isolation: psycopg.IsolationLevel
) -> None:
    ablate(db)
    assert takeover_before_the_commit(db, lease, isolation)


@FATAL
@snapshots
def test_without_it_an_old_snapshot_is_believed(
    db: Database, lease: Lease, ablate: Callable[[Database], None], level: psycopg.IsolationLevel
) -> None:
    ablate(db)
    assert old_snapshot(db, lease, level)


def test_the_key_alone_makes_a_takeover_wait(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> None:
    """Whatever lock acquire takes first: changing a key column waits by itself."""
    grant_like_a_renewal(db)
    a, b = db.connect("app", isolation=isolation), db.connect("app")
    present(a, lease)
    write(a, "in time")
    expire(db, "report:1")
    waiting = db.start_blocked(b, "select granted from fence.acquire('report:1')", by=a)
    a.commit()
    assert waiting.result(10).fetchall() == [(True,)]
    assert body(db) == "in time"


def test_the_strong_lock_alone_makes_a_takeover_wait(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    drop_the_key(db)
    assert not takeover_before_the_commit(db, lease, isolation)


@snapshots
def test_the_strong_lock_alone_fails_an_old_snapshot(db: Database, lease: Lease, level: psycopg.IsolationLevel) -> None:
    drop_the_key(db)
    assert not old_snapshot(db, lease, level)
