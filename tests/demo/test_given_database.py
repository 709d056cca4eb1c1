"""The demo in a given database: nothing is changed that is not put back, and rights are asked for first."""

from __future__ import annotations

import json

import psycopg
import pytest
from harness import SUPERUSER, Database

from .conftest import HASTE, Runner


def contents(db: Database) -> list[tuple[str, ...]]:
    """Every object of the database that is not PostgreSQL's own, by name, and what pyfence knows of its tables."""
    rows = db.execute(
        """
        select 'schema', nspname::text, '' from pg_namespace where nspname !~ '^pg_'
        union all
        select 'relation', relnamespace::regnamespace::text, relname::text from pg_class
         where relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
        union all
        select 'function', pronamespace::regnamespace::text, oid::regprocedure::text from pg_proc
         where pronamespace::regnamespace::text !~ '^(pg_|information_schema)'
        union all
        select 'trigger', tgrelid::regclass::text, tgname::text from pg_trigger where not tgisinternal
        union all
        select 'type', typnamespace::regnamespace::text, typname::text from pg_type
         where typnamespace::regnamespace::text !~ '^(pg_|information_schema)'
         order by 1, 2, 3
        """,
        user=SUPERUSER,
    )
    if db.execute("select to_regclass('fence.protected_tables') is not null", user=SUPERUSER) == [(True,)]:
        rows += db.execute("select 'guard', t::text, '' from fence.protected_tables t", user=SUPERUSER)
    return rows


def test_with_pyfence_installed(db: Database, runner: Runner) -> None:
    db.execute(f"grant create on database {db.name} to app_owner", user="fence_owner")
    before = contents(db)
    for _ in range(2):
        done = runner.run(before=HASTE, database_url=db.url("app_owner"), json=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert contents(db) == before
    (left,) = json.loads(done.stdout)["left_behind"]
    leases = db.execute("select resource, secret_hash from fence._lease order by resource", user=SUPERUSER)
    assert leases == [("pyfence_demo.report:1", None), ("pyfence_demo.report:2", None)], "over, and the same few"
    assert all(resource in left for resource, _ in leases)
    assert runner.left_running() == []


def test_without_pyfence(empty_db: Database, runner: Runner) -> None:
    before = contents(empty_db)
    url = empty_db.url("fence_owner").replace("postgresql://", "postgresql+psycopg://")
    done = runner.run(before=HASTE, database_url=url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Left behind" not in done.stdout
    assert contents(empty_db) == before


def test_a_broken_guard_is_noticed(db: Database, runner: Runner) -> None:
    """And everything is removed all the same."""
    db.execute(f"grant create on database {db.name} to app_owner", user="fence_owner")
    before = contents(db)
    db.execute(
        "create or replace function fence.present(p_resource text, p_token bigint, p_secret text,"
        " p_sequence bigint default null) returns void language plpgsql as 'begin return; end'",
        user=SUPERUSER,
    )
    done = runner.run(before=HASTE, database_url=db.url("app_owner"), json=True)
    assert done.returncode == 1
    assert any("forger" in difference for difference in json.loads(done.stdout)["differences"])
    assert contents(db) == before


def test_keep_leaves_the_schema_and_says_how_to_remove_it(db: Database, runner: Runner) -> None:
    db.execute(f"grant create on database {db.name} to app_owner", user="fence_owner")
    before = contents(db)
    done = runner.run(before=HASTE, database_url=db.url("app_owner"), json=True, keep=True)
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout)["left_behind"]
    with psycopg.connect(db.url("app_owner"), autocommit=True) as owner:
        with pytest.raises(psycopg.DatabaseError) as refused:
            owner.execute("delete from pyfence_demo.report")
        assert refused.value.sqlstate == "LF004"
        for statement in (line.strip() for line in left if line.endswith(";")):
            owner.execute(statement)
    assert contents(db) == before


@pytest.mark.parametrize(
    ("user", "may_create", "remedy"),
    [
        ("app_owner", False, "grant create on database"),
        ("app", True, "pyfence role add app --as admin"),
        ("outsider", True, "pyfence role add outsider --as client"),
    ],
)
def test_a_role_without_rights_is_told_what_it_lacks(
    db: Database, runner: Runner, user: str, may_create: bool, remedy: str
) -> None:
    if may_create:
        db.execute(f"grant create on database {db.name} to {user}", user="fence_owner")
    before = contents(db)
    done = runner.run(database_url=db.url(user))
    assert done.returncode == 3
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(db) == before


def test_no_database_there(runner: Runner) -> None:
    done = runner.run(database_url="postgresql://app:hush@127.0.0.1:1/demo", json=True)
    assert done.returncode == 3
    assert "cannot connect" in done.stderr
    assert "hush" not in done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is False
