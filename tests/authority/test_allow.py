"""fence.allow: which names a role may acquire, and how many at a time."""

from __future__ import annotations

import pytest
from guards.scene import acquire, ask, expire, release, revoke
from harness import SUPERUSER, Database, edit_authority, sqlstate


def allow(db: Database, role: str, pattern: str | None, most: int | None = None) -> None:
    db.execute("select fence.allow(%s, %s, %s)", (role, pattern, most))


def test_a_role_with_rules_may_acquire_those_names_only(db: Database) -> None:
    acquire(db, "anything")
    allow(db, "app", "report:*")
    allow(db, "app", "a.b")
    for name in ("report:1", "report:", "report:1:2\n", "a.b"):
        acquire(db, name)
    for name in ("reports:1", "xreport:1", "axb", "nightly"):
        with sqlstate("42501") as refused:
            ask(db, name)
        assert "report:*" in refused.diag.message_detail
    with sqlstate("42501"):
        db.execute("select fence.enter('nightly')", user="app")
    assert db.execute("select granted from fence.acquire('nightly')") == [(True,)]
    for pattern in ("report:*", "a.b"):
        allow(db, "app", pattern, 0)
    acquire(db, "reports:1")


def test_a_member_of_a_role_is_bound_by_its_rules(db: Database) -> None:
    db.execute("create role team", user=SUPERUSER)
    try:
        db.execute("grant team to app", user=SUPERUSER)
        allow(db, "team", "team:*")
        acquire(db, "team:1")
        with sqlstate("42501"):
            ask(db, "nightly")
        allow(db, "app", "nightly")
        acquire(db, "nightly")
        assert db.execute("select granted from fence.acquire('other')", user=SUPERUSER) == [(True,)]
    finally:
        db.execute("revoke team from app", user=SUPERUSER)
        db.execute("drop role team", user=SUPERUSER)


def test_a_role_may_hold_so_many_at_a_time(db: Database) -> None:
    allow(db, "app", "job:*", 2)
    first, _second = acquire(db, "job:1"), acquire(db, "job:2")
    with sqlstate("53400"):
        ask(db, "job:3")
    assert ask(db, "job:1").reason == "held", "what it holds already is no new one"
    release(db, first)
    acquire(db, "job:3")
    expire(db, "job:2")
    acquire(db, "job:1")
    allow(db, "app", "job:*")
    acquire(db, "job:4")


def test_the_last_one_is_not_given_twice(db: Database) -> None:
    allow(db, "app", "job:*", 1)
    first, second = db.connect("app"), db.connect("app")
    first.execute("select * from fence.acquire('job:1')")
    waiting = db.start_blocked(second, "select * from fence.acquire('job:2')", by=first)
    first.commit()
    with sqlstate("53400"):
        waiting.result(10)


def test_who_may_hold_any_number_waits_for_nobody(db: Database) -> None:
    allow(db, "app", "job:*")
    first, second = db.connect("app"), db.connect("app", options="-c statement_timeout=2s")
    acquire(first, "job:1")
    acquire(second, "job:2")


def test_counting_leases_leaves_none_of_them_locked(db: Database) -> None:
    """Those that are over are looked at under a lock; others may have them at once all the same."""
    allow(db, "app", "job:*", 5)
    for name in ("job:1", "job:2"):
        acquire(db, name)
        expire(db, name)
    job = db.connect("app")
    job.execute("select fence.enter('job:3')")
    assert db.execute("select granted from fence.acquire('job:1')") == [(True,)]
    assert revoke(db, "job:2")
    job.commit()


def test_one_that_is_being_renewed_counts(db: Database) -> None:
    allow(db, "app", "job:*", 1)
    acquire(db, "job:1")
    expire(db, "job:1")
    renewal = db.connect("fence_owner")  # was in time, and is not committed yet
    renewal.execute("update fence._lease set expires_at = clock_timestamp() + interval '1 h'")
    for end in (renewal.commit, lambda: None):
        with sqlstate("53400"):
            ask(db, "job:2")
        end()


@pytest.mark.parametrize("change", ["confirmed", "noticed by this request"])
def test_leases_of_an_earlier_lineage_do_not_count(db: Database, change: str) -> None:
    """Nobody can release them."""
    allow(db, "app", "job:*", 1)
    acquire(db, "job:1", "1 h")
    if change == "confirmed":
        db.execute("select fence.confirm_lineage()")
    else:
        edit_authority(db.url("fence_owner"), "database_oid = 1")
    acquire(db, "job:2")
    with sqlstate("53400"):
        ask(db, "job:3")


def test_leases_count_after_a_restart(db: Database) -> None:
    allow(db, "app", "job:*", 1)
    acquire(db, "job:1", "1 h")
    edit_authority(db.url("fence_owner"), "started_at = started_at - interval '1 h'")
    with sqlstate("53400"):
        ask(db, "job:2")


@pytest.mark.parametrize(
    ("role", "pattern", "most"),
    [("app", None, None), ("app", "", None), ("app", "x", -1), ("app", "x", 0), (None, "x", 1)],
)
def test_rules_that_say_nothing(db: Database, role: str | None, pattern: str | None, most: int | None) -> None:
    with sqlstate("LF010"):
        db.execute("select fence.allow(%s::regrole, %s, %s)", (role, pattern, most))
    assert db.execute("select * from fence.allowances") == []


def test_a_pattern_has_1024_bytes_at_the_most(db: Database) -> None:
    allow(db, "app", "x" * 1024)
    acquire(db, "x" * 1024)
    with sqlstate("LF010"):
        allow(db, "app", "x" * 1025)


def test_only_an_administrator_allows(db: Database) -> None:
    for user in ("app", "monitor", "outsider"):
        with sqlstate("42501"):
            db.execute("select fence.allow('app', '*')", user=user)
    allow(db, "app", "report:*", 3)
    assert db.execute("select role, pattern, max_leases, allowed_by from fence.allowances", user="monitor") == [
        ("app", "report:*", 3, "app_owner")
    ]
