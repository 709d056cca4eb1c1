"""What comes out of a dump is guarded from the first moment on."""

from __future__ import annotations

from pathlib import Path

import pytest
from guards.scene import acquire, contents, protect
from harness import Database, sqlstate
from restore.dumps import TABLES, build, check, dump, dump_to, load, run, succeed, target, unarmed
from trees.forest import attempt, guard_triggers


@pytest.mark.parametrize("form", ["plain", "custom", "four jobs", "four jobs from one file", "clean in place"])
def test_a_full_restore_is_guarded_at_once(db: Database, form: str, tmp_path: Path) -> None:
    scene = build(db)
    if form == "clean in place":
        path = dump_to(db, tmp_path / "d", "-Fc")
        succeed(db, "pg_restore", "--clean", "--if-exists", "-d", db.url("postgres"), str(path))
        check(db, scene)
        return
    with target(db, dummies=100) as other:
        if form == "plain":
            load(other, dump(db))
        elif form == "custom":
            succeed(db, "pg_restore", "-e", "-d", other.url("postgres"), str(dump_to(db, tmp_path / "d", "-Fc")))
        else:
            # pg_restore -j does not wait for the partitions' rows before it makes the triggers of a partitioned table
            path = dump_to(db, tmp_path / "d", "-Fd" if form == "four jobs" else "-Fc")
            for section in ("pre-data", "data", "post-data"):
                arguments = ["-e", "-j4", f"--section={section}", "-d", other.url("postgres"), str(path)]
                succeed(db, "pg_restore", *arguments)
        check(other, scene)
        for table in TABLES:
            other.execute("select fence.unprotect(%s)", (table,))
        assert guard_triggers(other) == {}


def test_what_was_counted_is_restored_too(db: Database) -> None:
    build(db)
    with target(db) as other:
        load(other, dump(db))
        assert other.execute("select resource, sequence from fence._accepted order by 1", user="fence_owner") == [
            ("nightly", None),
            ("report:1", 7),
        ]


def test_schema_only_then_the_data_of_the_fence(db: Database) -> None:
    """Guards without their registry refuse everything; the fence's own data is loaded by its owner."""
    scene = build(db)
    with target(db) as other:
        load(other, dump(db, "--schema-only"))
        connection = other.connect("app")
        for statement in (
            "insert into public.report values (1)",
            "insert into public.jan values (1, 'a', '2026-01-05')",
        ):
            assert attempt(connection, statement) == "LF004"
        load(other, dump(db, "--data-only", "-n", "fence"), user="fence_owner")
        check(other, scene, data=False)


def test_data_only_is_refused_where_tables_are_guarded(db: Database) -> None:
    scene = build(db)
    with target(db) as other:
        load(other, dump(db, "--schema-only"))
        load(other, dump(db, "--data-only", "-n", "fence"), user="fence_owner")
        script = dump(db, "--data-only", "-n", "public")
        for user in ("postgres", "app_owner"):
            done = run(other, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", other.url(user), feed=script)
            assert done.returncode == 3
            assert "without a claim" in done.stderr
        for table in TABLES:
            assert contents(other, table) == []
        check(other, scene, data=False)


def test_disabled_triggers_are_reported_and_mended(db: Database, tmp_path: Path) -> None:
    """What pg_restore --disable-triggers leaves behind: every trigger is on again, and none ALWAYS."""
    scene = build(db)
    path = dump_to(db, tmp_path / "d", "-Fc", "--data-only", "-n", "public")
    with target(db) as other:
        load(other, dump(db, "--schema-only"))
        load(other, dump(db, "--data-only", "-n", "fence"), user="fence_owner")
        succeed(db, "pg_restore", "--data-only", "--disable-triggers", "-d", other.url("postgres"), str(path))
        assert {table: contents(other, table) for table in TABLES} == scene.rows
        assert set(unarmed(other)) == {"report", "nightly", "t", "base"}
        found = {row[0] for row in other.execute("select object from fence.audit() where severity = 'error'")}
        assert {"public.report", "public.nightly", "public.base", "public.derived", "public.jan"} <= found
        assert attempt(other.connect("app"), "update public.report set body = 'new'") == "LF004"
        replica = other.connect("postgres", options="-c session_replication_role=replica")
        assert attempt(replica, "update public.report set body = 'new'") == 1  # the hole
        assert other.execute("select fence.repair()") == [(4,)]
        check(other, scene)
        assert attempt(replica, "update public.report set body = 'new'") == "LF004"


def test_the_fence_alone(db: Database) -> None:
    """Its leases and tokens are worth having without the tables; what it guarded is listed as missing."""
    scene = build(db)
    with target(db) as other:
        load(other, dump(db, "-n", "fence"))
        rows = other.execute("select table_name, protected_table, armed from fence.protected_tables order by 1")
        assert rows == [(name, None, False) for name in ("base", "nightly", "report", "t")]
        for resource, token in scene.tokens.items():
            other.execute("select fence.revoke(%s, 'restored')", (resource,))
            assert acquire(other, resource).token > token
        other.execute("create table public.report (id int primary key, body text)")
        protect(other, "public.report", "report:{id}")
        with sqlstate("LF004"):
            other.execute("insert into public.report values (1)")


def test_one_table_back_into_its_database(db: Database, tmp_path: Path) -> None:
    scene = build(db)
    for table, option in (("public.report", "-t"), ("public.nightly", "-t")):
        path = dump_to(db, tmp_path / table, "-Fc", option, table)
        succeed(db, "pg_restore", "--clean", "--if-exists", "-e", "-d", db.url("postgres"), str(path))
    check(db, scene)


def test_one_table_into_a_database_without_the_fence_says_so(db: Database, tmp_path: Path) -> None:
    build(db)
    path = dump_to(db, tmp_path / "d", "-Fc", "-t", "public.report")
    with target(db) as other:
        done = run(db, "pg_restore", "-d", other.url("postgres"), str(path))
        assert done.returncode == 1
        assert 'schema "fence" does not exist' in done.stderr
        other.execute("update public.report set body = 'unguarded'")
    with target(db, empty=False) as other:
        done = run(db, "pg_restore", "-d", other.url("postgres"), str(path))
        assert done.returncode == 1
        assert "does not exist" in done.stderr
        protect(other, "public.report", "report:{id}")
        assert unarmed(other) == []
        with sqlstate("LF004"):
            other.execute("update public.report set body = 'new'")


def test_one_table_into_a_database_where_its_guards_number_is_taken(db: Database, tmp_path: Path) -> None:
    """It comes under the guard of another table: it is refused to everybody, reported, and protected by one call."""
    build(db)
    ((number,),) = db.execute("select id from fence.protected_tables where table_name = 'report'")
    path = dump_to(db, tmp_path / "d", "-Fc", "-t", "public.report")
    with target(db, empty=False) as other:
        for count in range(number):
            other.execute(f"create table public.taken{count} (id int primary key)")
            protect(other, f"public.taken{count}", "taken:{id}")
        succeed(db, "pg_restore", "-d", other.url("postgres"), str(path))
        with sqlstate("LF004"):
            other.execute("update public.report set body = 'new'")
        assert other.execute("select fence.audit()") != []
        protect(other, "public.report", "report:{id}")
        assert unarmed(other) == []
        connection = other.connect("app")
        statement = "update public.report set body = 'new' where id = 1"
        assert attempt(connection, statement, acquire(other, "taken:1")) == "LF005"
        assert attempt(connection, statement, acquire(other, "report:1")) == 1
        insert = f"insert into public.taken{number - 1} values (1)"
        assert attempt(connection, insert, acquire(other, "report:2")) == "LF005"


def test_restored_by_an_owner_who_is_no_superuser(db: Database) -> None:
    """The application's owner restores its schema; the fence is there already."""
    build(db)
    script = dump(db, "-t", "public.nightly", user="app_owner")
    db.execute("drop table public.nightly")
    load(db, script, user="app_owner")
    assert unarmed(db) == []
    with sqlstate("LF004"):
        db.execute("insert into public.nightly values (2)")
