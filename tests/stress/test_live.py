"""Guards are put on, changed and taken off a table that everybody writes to, and nobody notices but the unaware."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire
from harness import Database, sqlstate, wait_until
from stress.conftest import LONG
from stress.pgbench import Pgbench

from pyfence import migrate

TENANTS = 4
#: What protect and the others may wait for: five tries of a second each, and what they sleep in between.
GIVES_UP_WITHIN = 6.0
#: No writer may be held up for longer than one try of protect and what it then does; plus a slow machine's due.
STALL = 3.0

SCRIPT = """
\\set id random(1, 1000)
begin;
select fence.present('live', {live.token}, '{live.secret}');
select fence.present('live:1', {row.token}, '{row.secret}');
update public.live set body = body + 1 where id = :id;
commit;
"""


@dataclass
class Unaware:
    """Legacy writers, each statement a transaction; what they are answered while the table is guarded."""

    db: Database
    accepted: int = 0
    refused: int = 0
    surprises: list[str] = field(default_factory=list)
    stop: bool = False

    def write(self) -> None:
        with psycopg.connect(self.db.url("outsider"), autocommit=True) as connection:
            while not self.stop:
                try:
                    connection.execute("insert into public.live (tenant) values (2)")
                    self.accepted += 1
                except psycopg.Error as error:
                    self.refused += 1
                    if error.sqlstate != "LF004":
                        self.surprises.append(f"{error.sqlstate}: {error}")
                    time.sleep(0.002)  # a refused job does not spin

    @contextmanager
    def at_work(self, writers: int) -> Iterator[None]:
        self.stop = False
        running = [self.db.in_thread(self.write) for _ in range(writers)]
        try:
            yield
        finally:
            self.stop = True
            for one in running:
                one.result(30)

    def rows(self) -> int:
        """How many rows they have put in, as of now."""
        return int(self.db.execute("select count(*) from public.live where tenant = 2", user="app")[0][0])


@pytest.fixture
def live(db: Database) -> tuple[Lease, Lease]:
    """public.live, not guarded yet, and the leases that its writers present: one for the table, one for its rows."""
    db.execute(
        "create table public.live (id int generated always as identity primary key, "
        "tenant int not null, body int not null default 0, token bigint)"
    )
    db.execute("insert into public.live (tenant) select 1 from generate_series(1, 1000)")
    return acquire(db, "live", "1 h"), acquire(db, "live:1", "1 h")


def settings(number: int) -> str:
    """One call of protect after the other: scopes, policies and the token column change under the writers."""
    return (
        "select fence.protect('public.live', 'live:{tenant}')",
        "select fence.protect('public.live', 'live:{tenant}', p_expiry => 'until_superseded')",
        "select fence.protect('public.live', 'live', p_token_column => 'token')",
        "select fence.set_mode('public.live', 'enforce')",
        "select fence.protect('public.live', 'live:{tenant}', p_expiry => 'reject', p_token_column => '')",
    )[number % 5]


def guard_it_live(
    db: Database, live: tuple[Lease, Lease], folder: Path, *, clients: int, seconds: int, writers: int
) -> dict[str, Any]:
    script = SCRIPT.format(live=live[0], row=live[1])
    unaware = Unaware(db)
    owner = db.connect("app_owner", autocommit=True)
    rounds = 0
    with Pgbench(db, folder, script, clients=clients, seconds=seconds) as bench, unaware.at_work(writers):
        wait_until(bench.began, "pgbench writes", state=db.activity)
        while bench.running:
            for number in range(5):
                owner.execute(settings(number))
                if number == 0:
                    before = unaware.rows()
                refused = unaware.refused
                wait_until(lambda refused=refused: unaware.refused > refused + writers, "the unaware are refused")
                if number == 1:
                    migrate.up(db.url("fence_owner"))
            assert unaware.rows() == before, "an unaware write was accepted after protect had returned"
            owner.execute("select fence.unprotect('public.live')")
            accepted = unaware.accepted
            wait_until(lambda accepted=accepted: unaware.accepted > accepted + writers, "the unaware write again")
            rounds += 1
        report = bench.report()
    figures = {"rounds": rounds, "accepted": unaware.accepted, "refused": unaware.refused, **vars(report)}
    assert (report.code, report.failed, report.errors.replace("pgbench", "").count("ERROR")) == (0, 0, 0), figures
    assert not unaware.surprises, unaware.surprises[:5]
    assert report.transactions > 0, figures
    assert report.longest < STALL, figures
    return figures


def test_a_guard_is_changed_under_everybodys_writes(
    db: Database, live: tuple[Lease, Lease], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = guard_it_live(db, live, tmp_path, clients=8, seconds=3, writers=2)
    record_property("live", figures)
    print(figures)


@pytest.mark.stress
@pytest.mark.timeout(LONG + 300)
def test_a_guard_is_changed_under_everybodys_writes_for_long(
    db: Database, live: tuple[Lease, Lease], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = guard_it_live(db, live, tmp_path, clients=64, seconds=int(LONG), writers=8)
    record_property("live", figures)
    print(figures)


@pytest.mark.stress
def test_protect_gives_up_and_leaves_everything_as_it_was(db: Database) -> None:
    """A long transaction holds the table: 55P03 within the bound, for every call that would change the guard."""
    calls = {
        "new": "select fence.protect('public.new', 'new:{id}')",
        "again": "select fence.protect('public.again', 'again', p_expiry => 'until_superseded')",
        "off": "select fence.unprotect('public.off')",
    }
    long = db.connect("app")
    for table in calls:
        db.execute(f"create table public.{table} (id int primary key)")
        db.execute(f"insert into public.{table} values (1)")
        long.execute(f"select from public.{table} where id = 1 for update")
    for table in ("again", "off"):
        db.execute(f"select fence.protect('public.{table}', '{table}:{{id}}')", user="app_owner")
    before = everything(db)
    # "off" needs ACCESS EXCLUSIVE; the others conflict with a writer only
    long.execute("insert into public.new values (2)")
    long.execute("lock table public.again in row exclusive mode")
    begun = time.monotonic()
    waiting = [db.in_thread(db.connect("app_owner", autocommit=True).execute, call) for call in calls.values()]
    for call in waiting:
        with sqlstate("55P03") as refused:
            call.result(GIVES_UP_WITHIN * 3)
        assert "five tries" in refused.diag.message_detail
    assert GIVES_UP_WITHIN - 1.5 < time.monotonic() - begun < GIVES_UP_WITHIN * 2
    assert everything(db) == before
    long.rollback()
    for call in calls.values():
        db.execute(call)


def everything(db: Database) -> list[Any]:
    """All that protect and unprotect could have left: registry, functions, triggers, history, rights."""
    return [
        db.execute(query, user="fence_owner")
        for query in (
            "select g::text from fence._guard g order by id",
            "select h::text from fence._history h order by id",
            "select proname, prosrc, proacl::text from pg_proc where pronamespace = 'fence'::regnamespace order by 1",
            "select tgrelid, pg_get_triggerdef(oid), tgenabled from pg_trigger order by tgrelid, tgname",
        )
    ]
