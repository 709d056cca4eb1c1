"""Leases are locked in name order, whatever the order in which they are named, found or stored: nobody deadlocks."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, forge, protect
from harness import Connection, Database

ROWS = 6


def is_locked(db: Database, lease: Lease) -> bool:
    try:
        db.execute(
            "select from fence._lease where resource = %s for update nowait", (lease.resource,), user="fence_owner"
        )
    except psycopg.errors.LockNotAvailable:
        return True
    return False


@pytest.fixture
def leases(db: Database) -> list[Lease]:
    """Of the rows of public.t, granted in the reverse of name order; there is a covering resource, too."""
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t select i, 'old' from generate_series(1, %s) i", (ROWS,))
    protect(db, "public.t", "row:{id}", p_covering="all rows")
    return [acquire(db, f"row:{number}") for number in range(ROWS, 0, -1)]


@pytest.fixture
def holder(db: Database, leases: list[Lease]) -> Connection:
    """Whoever has the first lease by name: nobody else gets past it."""
    holder = db.connect("fence_owner")
    holder.execute("select from fence._lease where resource = 'row:1' for update")
    return holder


def nothing_else_is_locked(db: Database, leases: list[Lease]) -> None:
    assert [lease.resource for lease in leases if is_locked(db, lease)] == ["row:1"]


def test_presenting_many(db: Database, leases: list[Lease], holder: Connection) -> None:
    writer = db.connect("app")
    arrays = [list(values) for values in zip(*(lease.parameters for lease in leases), strict=True)]
    waiting = db.start_blocked(writer, "select fence.present_all(%s, %s, %s)", arrays, by=holder)
    nothing_else_is_locked(db, leases)
    holder.rollback()
    waiting.result(10)
    assert all(is_locked(db, lease) for lease in leases)


def test_a_statement_that_touches_many(db: Database, leases: list[Lease], holder: Connection) -> None:
    writer = db.connect("app")
    forge(writer, *leases)  # the claims without the locks, as start-up options bring them
    waiting = db.start_blocked(writer, "update public.t set body = 'new'", by=holder)
    nothing_else_is_locked(db, leases)
    holder.rollback()
    assert waiting.result(10).rowcount == ROWS
