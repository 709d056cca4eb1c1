"""Attempts to have two holders write one row: around covering leases and around `enter`, at every isolation level.

The writers here have their claims from the start of the connection: nothing is locked before the first write.
"""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, contents, expire, present, protect, release, startup
from harness import Connection, Database, sqlstate

WRITE = "update public.t set body = 'stale' where id = 1"
Isolation = psycopg.IsolationLevel


@pytest.fixture(params=[pytest.param("reject", marks=pytest.mark.full), "until_superseded"])
def t(db: Database, request: pytest.FixtureRequest) -> str:
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t select i, 'old' from generate_series(1, 3) i")
    protect(db, "public.t", "row:{id}", p_covering="all rows", p_expiry=request.param)
    return "public.t"


def opened(db: Database, lease: Lease, isolation: Isolation) -> Connection:
    """A writer whose transaction, and above READ COMMITTED its snapshot, begins now."""
    writer = db.connect("app", isolation=isolation, options=startup(lease))
    writer.execute("select count(*) from public.t")
    return writer


def refused(writer: Connection, isolation: Isolation, code: str = "LF001") -> None:
    with sqlstate(code if isolation is Isolation.READ_COMMITTED else "40001"):
        writer.execute(WRITE)
    writer.rollback()


def test_the_holder_of_a_row_after_the_covering_lease_was_granted(db: Database, t: str, isolation: Isolation) -> None:
    writer = opened(db, acquire(db, "row:1"), isolation)
    acquire(db, "all rows")
    refused(writer, isolation)
    with sqlstate("LF001"):
        writer.execute(WRITE)


def test_the_holder_of_a_row_after_the_covering_lease_is_over_again(db: Database, t: str, isolation: Isolation) -> None:
    writer = opened(db, acquire(db, "row:1"), isolation)
    release(db, acquire(db, "all rows"))
    refused(writer, isolation)


def test_the_covering_holder_after_a_row_was_granted(db: Database, t: str, isolation: Isolation) -> None:
    covering = acquire(db, "all rows")
    writer = opened(db, covering, isolation)
    release(db, covering)
    acquire(db, "row:1")
    refused(writer, isolation)


def test_the_covering_holder_whose_time_ran_out_after_a_row_was_granted(
    db: Database, t: str, isolation: Isolation
) -> None:
    covering = acquire(db, "all rows")
    writer = opened(db, covering, isolation)
    expire(db, "all rows")
    acquire(db, "row:1")
    refused(writer, isolation)


def test_the_covering_holder_after_another_resource_covers(db: Database, t: str, isolation: Isolation) -> None:
    """The guard's function is never an old one, whatever the snapshot."""
    writer = opened(db, acquire(db, "all rows"), isolation)
    protect(db, "public.t", "row:{id}", p_covering="every row")
    acquire(db, "row:1")
    with sqlstate("LF005"):
        writer.execute(WRITE)
    writer.rollback()
    release(db, Lease("row:1", 0, ""))


def test_a_row_and_its_cover_in_one_transaction(db: Database, t: str, isolation: Isolation) -> None:
    """The stale one of two claims does not hide behind the present one."""
    row = acquire(db, "row:1")
    covering = acquire(db, "all rows")
    writer = db.connect("app", isolation=isolation, options=startup(row))
    with sqlstate("LF001"):
        writer.execute(WRITE)
    writer.rollback()
    present(writer, covering)
    assert writer.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    writer.commit()
    release(db, covering)
    acquire(db, "row:1")
    both = db.connect("app", isolation=isolation, options=startup(row, covering))
    with sqlstate("LF001"):
        both.execute(WRITE)
    assert contents(db, t)[0] == (1, "new")


# -- enter, in transactions of every kind ------------------------------------------------------------------------------


def enter(connection: Connection, name: str) -> None:
    connection.execute("select fence.enter(%s)", (name,))


def test_enter_above_read_committed(db: Database, t: str, isolation: Isolation) -> None:
    job = db.connect("app", isolation=isolation)
    job.execute("select count(*) from public.t")
    release(db, acquire(db, "row:1"))
    if isolation is Isolation.READ_COMMITTED:
        enter(job, "row:1")
        assert job.execute(WRITE).rowcount == 1
        return
    with sqlstate("40001"):
        enter(job, "row:1")
        job.execute(WRITE)


def test_a_prepared_transaction_that_entered_is_waited_for(db: Database, t: str) -> None:
    release(db, acquire(db, "row:1"))
    job = db.connect("app")
    enter(job, "row:1")
    job.execute("update public.t set body = 'new' where id = 1")
    job.execute("prepare transaction 'entered'")
    held = ask(db, "row:1")
    assert (held.granted, held.reason) == (False, "draining")
    finish = db.connect("app", autocommit=True)
    finish.execute("commit prepared 'entered'")
    assert contents(db, t)[0] == (1, "new")
    acquire(db, "row:1")
    with sqlstate("LF004"):
        finish.execute(WRITE)


def test_a_procedure_that_commits_has_nothing_left(db: Database, t: str) -> None:
    job = db.connect("app", autocommit=True)
    with sqlstate("LF004"):
        job.execute(f"do $$ begin perform fence.enter('row:1'); commit; {WRITE}; end $$")
    acquire(db, "row:1")


def test_a_cursor_that_outlives_its_transaction_writes_within_it(db: Database, t: str) -> None:
    """What a holdable cursor has not run yet runs at the commit, under the claim; afterwards it only hands out rows."""
    db.execute(
        "create function public.write() returns text language plpgsql as"
        " $$ begin update public.t set body = body || '+' where id = 1; return 'written'; end $$"
    )
    job = db.connect("app")
    enter(job, "row:1")
    job.execute("declare c cursor with hold for select public.write() from generate_series(1, 2)")
    job.commit()
    successor = acquire(db, "row:1")
    assert len(job.execute("fetch all from c").fetchall()) == 2
    job.commit()
    assert contents(db, t)[0] == (1, "old++")
    job.execute("declare d cursor with hold for select public.write()")
    with sqlstate("LF004"):
        job.commit()
    assert release(db, successor)


def test_a_cursor_that_enters_late_enters_for_its_transaction_alone(db: Database, t: str) -> None:
    job = db.connect("app")
    job.execute("declare c cursor with hold for select fence.enter('row:1')")
    job.commit()
    acquire(db, "row:1")
    job.execute("fetch all from c")
    with sqlstate("LF004"):
        job.execute(WRITE)


def test_deferred_checks_write_under_the_claim_or_not_at_all(db: Database, t: str) -> None:
    db.execute(
        """
        create table public.later (id int);
        create function public.late() returns trigger language plpgsql as
        $$ begin update public.t set body = 'late' where id = new.id; return null; end $$;
        create constraint trigger late after insert on public.later deferrable initially deferred
        for each row execute function public.late();
        """
    )
    job = db.connect("app")
    enter(job, "row:1")
    job.execute("insert into public.later values (1)")
    job.commit()
    assert contents(db, t)[0] == (1, "late")
    job.execute("insert into public.later values (1)")
    with sqlstate("LF004"):
        job.commit()
