"""From every earlier revision, in use, to a later one and back, under writers that ask nobody."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, present
from harness import SUPERUSER, Database, sqlstate, wait_until
from migrations.catalog import differences, identities
from migrations.later import LATER, MARK, add_later_revision
from migrations.populated import DUMPS, WRITES, populate

import pyfence
from pyfence import _resources, migrate

from .conftest import Program, catalog

#: Revisions that were released, with the dump that was kept then; and the newest, as it is now.
EARLIER = ["as it is now", *sorted(path.stem for path in DUMPS.glob("*.sql"))]


@pytest.fixture(params=EARLIER)
def in_use(
    db: Database,
    other_db: Database,
    request: pytest.FixtureRequest,
    program: Program,
    psql: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Database:
    """A database restored from the dump of one in use, at an earlier revision; a later one is there to go to."""
    if request.param == "as it is now":
        populate(db)
        text = program("pg_dump", "-d", db.url(SUPERUSER))
    else:
        text = (DUMPS / f"{request.param}.sql").read_text("utf-8")
    psql(other_db.url(SUPERUSER), text)
    add_later_revision(tmp_path / "migrations")
    monkeypatch.setattr(_resources, "migrations_dir", lambda: tmp_path / "migrations")
    return other_db


def test_every_released_revision_has_its_dump() -> None:
    listed = (_resources.frozen_dir() / "CHECKSUMS").read_text("utf-8").splitlines()
    released = {line.split("  ")[1].split("/")[0] for line in listed if line and not line.startswith("#")}
    assert released <= set(EARLIER)


class Crowd:
    """Four writers that present nothing, on every protected table; and one that holds a lease."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.over = threading.Event()
        self.refusals: Counter[str] = Counter()
        self.accepted: list[str] = []
        self.rounds = [0] * 5
        self.holders_writes = 0
        self.unexpected: list[str] = []

    def intrude(self, number: int) -> None:
        connection = self.db.connect("outsider", autocommit=True)
        while not self.over.is_set():
            for table, (statement, _) in WRITES.items():
                try:
                    connection.execute(statement)
                    self.accepted.append(table)
                except psycopg.Error as refused:
                    self.refusals[str(refused.diag.constraint_name or refused.sqlstate)] += 1
            self.rounds[number] += 1

    def hold(self, lease: Lease) -> None:
        connection = self.db.connect("app")
        while not self.over.is_set():
            try:
                present(connection, lease)
                connection.execute(WRITES["app.account"][0])
                connection.commit()
                self.holders_writes += 1
            except psycopg.Error as refused:
                connection.rollback()
                self.unexpected.append(f"{refused.sqlstate} {refused}")
            self.rounds[4] += 1


@contextmanager
def crowd(db: Database, lease: Lease) -> Iterator[Crowd]:
    """The writers, all at work before the block begins and after what it does."""
    writers = Crowd(db)

    def at_work() -> None:
        seen = list(writers.rounds)
        wait_until(lambda: all(now > then for now, then in zip(writers.rounds, seen, strict=True)), "all write")

    running = [db.in_thread(writers.intrude, number) for number in range(4)]
    running.append(db.in_thread(writers.hold, lease))
    try:
        at_work()
        yield writers
        at_work()
    finally:
        writers.over.set()
        for thread in running:
            thread.result(timeout=30)


def sources(db: Database) -> set[bool]:
    """Whether the functions of the guards in enforce mode are those of the later revision."""
    rows = db.execute(
        "select p.prosrc from pg_proc p join fence._guard g on p.proname = '_guard_' || g.id"
        " where p.pronamespace = 'fence'::regnamespace and g.mode = 'enforce'",
        user="fence_owner",
    )
    assert len(rows) == len(WRITES)
    return {MARK in source for (source,) in rows}


def test_up_and_down_under_writers(in_use: Database) -> None:
    """Zero writes accepted without a claim, not one of a holder refused, no guard that says LF011."""
    url = in_use.url("fence_owner")
    newest = migrate.current(url)
    lease = acquire(in_use, "account:1", "10 minutes")
    before = catalog(in_use)
    with crowd(in_use, lease) as writers:
        migrate.up(url)
        assert migrate.check(url) == LATER
        assert sources(in_use) == {True}
        migrate.down(url, str(newest))
        assert migrate.current(url) == newest
        assert sources(in_use) == {False}
    assert writers.accepted == []
    assert writers.unexpected == []
    assert set(writers.refusals) == {"LF004"}
    assert writers.holders_writes > 2
    assert differences(before, catalog(in_use)) == []
    assert in_use.execute("select object, detail from fence.audit() where severity = 'error'") == []


def test_guards_are_made_anew_beside_open_writers(in_use: Database) -> None:
    """No lock on any table of the application: its transactions stay open all the while, and go on."""
    lease = acquire(in_use, "account:1", "10 minutes")
    open_writer = in_use.connect("app")
    present(open_writer, lease)
    open_writer.execute(WRITES["app.account"][0])
    altering = in_use.connect("app_owner")
    altering.execute("lock table app.nightly, app.payment in access exclusive mode")
    with psycopg.connect(in_use.url("fence_owner"), options="-c lock_timeout=2s") as connection:
        migrate.up(connection)
    assert sources(in_use) == {True}
    altering.rollback()
    assert open_writer.execute(WRITES["app.account"][0]).rowcount == 1
    open_writer.commit()


def test_rights_policies_and_what_was_held_are_kept(in_use: Database) -> None:
    acquire(in_use, "account:1", "10 minutes")
    rights = {key for key in catalog(in_use) if " may " in key and "release" not in key}
    kept = [
        "select * from fence.leases order by 1",
        "select * from fence.allowances",
        "select * from fence.options",
        "select * from fence.violations",
        "select resource, mode, expiry, writes, inserts, covering, armed from fence.protected_tables order by 1",
        "select * from fence.history order by id",
    ]
    before = [in_use.execute(query, user=SUPERUSER) for query in kept]
    assert all(before)
    migrate.up(in_use.url("fence_owner"))
    assert [in_use.execute(query, user=SUPERUSER) for query in kept] == before
    assert {key for key in catalog(in_use) if " may " in key and "release" not in key} == rights
    assert in_use.execute("select fence.release('x', 1, 'y')", user="app") == [(False,)]
    with sqlstate("42501"):
        in_use.execute("select fence.release('x', 1, 'y')", user="monitor")
    assert in_use.execute("select count(*) from pg_proc where proname = 'release'") == [(1,)]


def test_a_client_of_an_earlier_revision_works_with_a_later_schema(in_use: Database) -> None:
    migrate.up(in_use.url("fence_owner"))
    with pyfence.Fence(in_use.url("app")) as fence, fence.lease("account:1", ttl=10) as lease:
        with lease.transaction() as connection:
            connection.execute(WRITES["app.account"][0])
        assert lease.fenced_update("app.account", {"id": 1}, {"body": "new"}) == 1
    assert ask(in_use, "account:1").granted


def test_a_script_does_the_same(in_use: Database, psql: Callable[..., str]) -> None:
    newest = str(migrate.current(in_use.url("fence_owner")))
    before = catalog(in_use)
    psql(in_use.url("fence_owner"), migrate.sql(f"{newest}:{LATER}"))
    assert migrate.check(in_use.url("fence_owner")) == LATER
    assert sources(in_use) == {True}
    psql(in_use.url("fence_owner"), migrate.sql(f"{LATER}:{newest}"))
    assert differences(before, catalog(in_use)) == []


def test_a_guard_that_cannot_be_made_anew_keeps_what_it_has(in_use: Database) -> None:
    """And refuses, as before; the others are made anew."""
    in_use.execute("""alter table "Odd, schema"."T" rename column "Key's" to gone""")
    notices: list[str] = []
    with psycopg.connect(in_use.url("fence_owner")) as connection:
        connection.add_notice_handler(lambda diag: notices.append(str(diag.message_primary)))
        migrate.up(connection)
    assert len(identities(catalog(in_use))) > 100
    with pytest.raises(psycopg.DatabaseError):
        in_use.execute(WRITES['"Odd, schema"."T"'][0])
    with sqlstate("LF004"):
        in_use.execute(WRITES["app.account"][0])
