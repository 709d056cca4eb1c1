"""Roles that hold locks for as long as they like: on user tables, on advisory numbers, on pyfence's own rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.command import CommandLine
from guards.scene import Lease, acquire, ask, contents, present, protect, release, renew, revoke
from harness import SUPERUSER, Connection, Database, sqlstate

from pyfence import migrate

MIGRATION_LOCK = 31658678086951781


@pytest.fixture
def lease(db: Database) -> Lease:
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    protect(db, "public.report", "report:{id}")
    return acquire(db, "report:1")


@pytest.fixture
def squatter(db: Database, lease: Lease) -> Connection:
    return db.connect("outsider")


SQUATS = [
    "select 1 from public.report where id = 1 for update",
    "lock table public.report in share row exclusive mode",
    "lock table public.report in access exclusive mode",
]


@pytest.mark.parametrize("squat", SQUATS)
def test_locks_on_a_users_table_touch_no_lease(db: Database, lease: Lease, squatter: Connection, squat: str) -> None:
    """Leases are renewed, released and granted. The holder's write waits, as anywhere, by its own lock_timeout."""
    squatter.execute(squat)
    renew(db, lease)
    holder = db.connect("app")
    present(holder, lease)
    holder.execute("set local lock_timeout = '20ms'")
    with sqlstate("55P03"):
        holder.execute("update public.report set body = 'new' where id = 1")
    holder.rollback()
    assert release(db, lease)
    acquire(db, "report:1")


def test_a_write_that_a_squatter_held_up_past_its_lease_is_refused(
    db: Database, lease: Lease, squatter: Connection
) -> None:
    squatter.execute(SQUATS[0])
    holder = db.connect("app")
    present(holder, lease)
    write = db.start_blocked(holder, "update public.report set body = 'late' where id = 1", by=squatter)
    revoke(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    squatter.rollback()
    with sqlstate("LF001"):
        write.result(timeout=20)
    holder.rollback()
    acquire(db, "report:1")
    assert contents(db, "public.report")[0] == (1, "old")


def test_advisory_locks_stop_nobody(db: Database, lease: Lease, squatter: Connection) -> None:
    """Any role may take any number: the label of a grant is asked for and never waited for."""
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    squatter.execute("select pg_advisory_lock(%s)", (label,))
    holder = db.connect("app")
    holder.execute("set lock_timeout = '10ms'")
    present(holder, lease)
    assert holder.execute("update public.report set body = 'new' where id = 1").rowcount == 1
    renew(db, lease)
    holder.commit()
    release(db, lease)
    acquire(db, "report:1")


def test_a_label_taken_by_hand_has_nobody_evicted(db: Database, lease: Lease, squatter: Connection) -> None:
    """Not the squatter, who has locked no lease, and not a holder of another resource."""
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    squatter.execute("select pg_advisory_xact_lock_shared(%s)", (label,))
    other = db.connect("app")
    present(other, acquire(db, "report:2"))
    revoke(db, "report:1")
    assert db.execute("select fence.evict('report:1')") == [(0,)]
    assert other.execute("update public.report set body = 'new' where id = 2").rowcount == 1


def test_the_lock_of_migrations_can_be_held_up_and_is_not_waited_for_longer_than_allowed(
    db: Database, squatter: Connection
) -> None:
    squatter.execute("select pg_advisory_lock(%s)", (MIGRATION_LOCK,))
    cli = CommandLine(db.url("fence_owner"))
    assert cli("migrate", "up", "--timeout", "0.5", "--json", code=3).error["code"] == "57014"
    assert cli("migrate", "check").out == f"{migrate.head()}\n"
    squatter.execute("select pg_advisory_unlock_all()")
    cli("migrate", "up")


@pytest.fixture
def all_data(db: Database, lease: Lease) -> Iterator[Connection]:
    """A session that may read and write every table of the server."""
    db.execute("grant pg_read_all_data, pg_write_all_data to outsider", user=SUPERUSER)
    try:
        yield db.connect("outsider")
    finally:
        db.execute("revoke pg_read_all_data, pg_write_all_data from outsider", user=SUPERUSER)


def test_who_may_write_all_data_can_stall_a_lease_and_not_steal_it(
    db: Database, lease: Lease, all_data: Connection
) -> None:
    all_data.execute("select 1 from fence._lease for update")
    holder = db.connect("app")
    holder.execute("set lock_timeout = '10ms'")  # present's own is 5 s
    release_waits = db.connect("app", autocommit=True)
    with sqlstate("55P03"):
        release_waits.execute("select fence.release(%s, %s, %s)", lease.parameters)
    assert ask(db, "report:1").reason == "held"
    for statement in ("update fence._lease set owner = 'me'", "delete from fence._lease"):
        with sqlstate("42501"), all_data.transaction():
            all_data.execute(statement)
    all_data.rollback()
    present(holder, lease)
    assert holder.execute("update public.report set body = 'new' where id = 1").rowcount == 1


def test_what_is_read_of_a_lease_is_no_claim(db: Database, lease: Lease, all_data: Connection) -> None:
    """The hash of the secret, in every spelling, is not the secret."""
    ((token, digest),) = all_data.execute("select token, secret_hash from fence._lease").fetchall()
    for secret in (digest.hex(), f"\\x{digest.hex()}", digest.decode("latin-1").replace("\0", "")):
        with sqlstate("LF006"):
            db.execute("select fence.present('report:1', %s, %s)", (token, secret), user="app")


def test_a_lock_on_a_whole_table_of_pyfences_stops_grants_within_two_seconds(
    db: Database, lease: Lease, all_data: Connection
) -> None:
    all_data.execute("lock table fence._lease in access exclusive mode")
    with sqlstate("55P03"):
        db.execute("select fence.acquire('report:2')", user="app")
    all_data.rollback()
    acquire(db, "report:2")
