"""Dumps carry the leases into another database, or back into the same; no token comes twice."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import acquire, present, protect, revoke, supersede
from harness import Database, sqlstate
from restore.dumps import dump, load, run, target


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


def test_a_restored_copy_accepts_no_holder_and_lands_above(db: Database, report: str) -> None:
    holder = acquire(db, "report:1")
    text = dump(db)
    lost = supersede(db, supersede(db, holder))
    with target(db, dummies=20) as copy:
        load(copy, text)
        connection = copy.connect("app")
        with sqlstate("LF001"):
            present(connection, holder)
        connection.rollback()
        newer = acquire(copy, "report:1")
        assert newer.token > lost.token
        old = supersede(db, lost)  # the original goes on: whoever remembers the highest refuses it
        assert old.token < newer.token
        present(connection, newer)
        assert connection.execute("update public.report set body = 'new'").rowcount == 1


def test_a_restore_over_the_same_database_lands_above_what_it_took_back(db: Database, report: str) -> None:
    holder = acquire(db, "report:1")
    text = dump(db, "--clean", "--if-exists")
    lost = supersede(db, supersede(db, holder))
    load(db, text)
    assert db.execute("select token from fence.leases", user="monitor") == [(holder.token,)]
    connection = db.connect("app")
    with sqlstate("LF001"):
        present(connection, holder)
    assert acquire(db, "report:1").token > lost.token


def test_the_data_alone_does_not_come_over_leases_that_are_there(db: Database, report: str) -> None:
    """A duplicate key, also for the one table of leases: nothing is taken back."""
    holder = acquire(db, "report:1")
    texts = [dump(db, "--data-only", "-n", "fence"), dump(db, "--data-only", "-t", "fence._lease")]
    newer = supersede(db, holder)
    for text in texts:
        done = run(db, "psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", db.url("fence_owner"), feed=text)
        assert "duplicate key" in done.stderr
    assert db.execute("select token from fence.leases", user="monitor") == [(newer.token,)]


@pytest.mark.parametrize("table", ["_lease", "_authority"])
def test_one_table_of_pyfences_is_not_put_in_the_place_of_what_is_there(db: Database, report: str, table: str) -> None:
    """Other objects hang on it: DROP fails, and so does the restore."""
    holder = acquire(db, "report:1")
    text = dump(db, "--clean", "-t", f"fence.{table}")
    newer = supersede(db, holder)
    done = run(db, "psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", db.url("postgres"), feed=text)
    assert "depend" in done.stderr
    assert db.execute("select token from fence.leases", user="monitor") == [(newer.token,)]
    assert supersede(db, newer).token > newer.token


def test_an_authority_that_comes_with_the_data_is_not_believed(db: Database, report: str) -> None:
    """Into a schema without data, as the manual says: the row is a copy, so a lineage begins."""
    holder = acquire(db, "report:1")
    schema, data = dump(db, "--schema-only"), dump(db, "--data-only", "-n", "fence")
    lost = supersede(db, holder)
    with target(db) as copy:
        load(copy, schema)
        with sqlstate("LF009") as refused:
            copy.execute("select * from fence.acquire('report:1')", user="app")
        assert "pg_dump --data-only -n fence" in refused.diag.message_hint
        for call in ("confirm_lineage()", "raise_token_floor(5, 'x')"):
            with sqlstate("LF009"):
                copy.execute(f"select fence.{call}")
        load(copy, data, user="fence_owner")
        assert acquire(copy, "report:1").token > lost.token
    assert revoke(db, "report:1")
    with pytest.raises(psycopg.DatabaseError):
        present(db.connect("app"), lost)
