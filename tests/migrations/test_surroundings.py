"""Databases as they are found: no search path, no public schema, few rights; and what a dump of one restores to."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from harness import SUPERUSER, Database, sqlstate
from migrations.catalog import differences, identities

from pyfence import migrate
from pyfence.errors import FenceError, SchemaMismatch

from .conftest import Program, catalog


def test_an_empty_search_path(empty_db: Database) -> None:
    empty_db.execute(f"alter database {empty_db.name} set search_path = ''", user=SUPERUSER)
    url = empty_db.url("fence_owner")
    migrate.up(url)
    assert migrate.check(url) == migrate.head()
    migrate.down(url)
    migrate.up(url)


def test_a_search_path_with_traps(empty_db: Database, other_db: Database) -> None:
    """Look-alikes of built-in names in front of pg_catalog: an installer with more rights must not run them."""
    empty_db.execute("create schema trap; grant usage on schema trap to public", user=SUPERUSER)
    for name, arguments in (("format", "text, name"), ("to_regclass", "text"), ("to_regnamespace", "text")):
        empty_db.execute(
            f"create function trap.{name}({arguments}) returns text language plpgsql"
            " as $$ begin raise exception 'trapped'; end $$",
            user=SUPERUSER,
        )
    empty_db.execute(f"alter database {empty_db.name} set search_path = trap, pg_catalog, public", user=SUPERUSER)
    for database in (empty_db, other_db):
        migrate.up(database.url("fence_owner"))
    assert differences(catalog(empty_db), catalog(other_db)) == []
    migrate.down(empty_db.url("fence_owner"))


def test_without_a_public_schema(empty_db: Database) -> None:
    empty_db.execute("drop schema public cascade", user=SUPERUSER)
    url = empty_db.url("fence_owner")
    migrate.up(url)
    found = catalog(empty_db)
    assert [key for key, value in found.items() if re.search(r"\bpublic\.", value)] == []
    with empty_db.connect("fence_owner") as owner:
        owner.execute("create schema app")
        owner.execute("create table app.t (id integer primary key)")
        owner.execute("select fence.protect('app.t', 't:{id}')")
        owner.commit()
        work(owner, "app.t")
        owner.execute("select fence.unprotect('app.t')")
        owner.commit()
    migrate.down(url)
    migrate.up(url)


def test_a_role_with_create_on_the_database_alone(empty_db: Database, other_db: Database) -> None:
    empty_db.execute(f"alter database {empty_db.name} owner to {SUPERUSER}", user=SUPERUSER)
    empty_db.execute(f"revoke all on database {empty_db.name} from public", user=SUPERUSER)
    empty_db.execute(f"grant connect, create on database {empty_db.name} to fence_owner", user=SUPERUSER)
    empty_db.execute("revoke all on schema public from public", user=SUPERUSER)
    for database in (empty_db, other_db):
        migrate.up(database.url("fence_owner"))
    assert differences(catalog(empty_db), catalog(other_db)) == []
    migrate.down(empty_db.url("fence_owner"))


def test_without_create_on_the_database(empty_db: Database) -> None:
    with sqlstate("42501"):
        migrate.up(empty_db.url("app"))
    assert identities(catalog(empty_db)) == set()


def test_default_privileges_of_the_database_give_nobody_anything(empty_db: Database, other_db: Database) -> None:
    for kind, rights in (("tables", "all"), ("functions", "execute"), ("sequences", "all")):
        empty_db.execute(f"alter default privileges grant {rights} on {kind} to public", user="fence_owner")
    for database in (empty_db, other_db):
        migrate.up(database.url("fence_owner"))
    opened = [key for key in catalog(empty_db) if ": public may" in key and not key.startswith("type ")]
    assert opened == []


# -- dump and restore -------------------------------------------------------------------------------------------------


def work(connection: psycopg.Connection, table: str) -> None:
    """Write under a lease, and be refused without one. Names nothing without its schema but the built-ins."""
    connection.execute("select pg_catalog.set_config('search_path', '', false)")
    lease = connection.execute("select token, secret from fence.acquire('t:1')").fetchone()
    assert lease is not None
    connection.commit()
    connection.execute("select fence.present('t:1', %s, %s)", lease)
    connection.execute(f"insert into {table} (id) values (1)")
    connection.commit()
    with sqlstate("LF004"):
        connection.execute(f"delete from {table}")
    connection.rollback()
    connection.execute("select fence.release('t:1', %s, %s)", lease)
    connection.commit()


@pytest.fixture
def protected(db: Database) -> Database:
    """A migrated database with a protected table, a row in it and a lease that is held."""
    db.execute("create table public.report (id integer primary key, body text)")
    db.execute("insert into public.report select g, 'old' from generate_series(10, 20) g")
    db.execute("select fence.protect('public.report', 't:{id}')")
    db.execute("select from fence.acquire('t:10', '1 hour')", user="app")
    return db


def refused_and_accepted(database: Database) -> None:
    """The restored guard works, for roles with and without rights in the schema, whatever their search path."""
    for user, path in (("outsider", ""), ("outsider", "public"), ("app", "")):
        with database.connect(user, search_path=path) as connection, sqlstate("LF004"):
            connection.execute("update public.report set body = 'stale'")
    with database.connect("app") as connection:
        work(connection, "public.report")


def test_a_plain_dump(protected: Database, other_db: Database, program: Program, psql: Callable[..., str]) -> None:
    dump = program("pg_dump", "-d", protected.url(SUPERUSER))
    psql(other_db.url(SUPERUSER), dump)
    assert differences(catalog(protected), catalog(other_db)) == []
    assert migrate.check(other_db.url("fence_owner")) == migrate.head()
    refused_and_accepted(other_db)
    migrate.up(other_db.url("fence_owner"))
    other_db.execute("select fence.unprotect('public.report')")
    migrate.down(other_db.url("fence_owner"))


def test_a_parallel_restore(protected: Database, other_db: Database, program: Program, tmp_path: Path) -> None:
    archive = str(tmp_path / "dump")
    program("pg_dump", "-Fc", "-f", archive, "-d", protected.url(SUPERUSER))
    program("pg_restore", "-j", "4", "-d", other_db.url(SUPERUSER), archive)
    assert differences(catalog(protected), catalog(other_db)) == []
    refused_and_accepted(other_db)


def test_a_dump_of_the_schema_alone(
    db: Database, other_db: Database, program: Program, psql: Callable[..., str]
) -> None:
    dump = program("pg_dump", "--schema-only", "--schema=fence", "-d", db.url(SUPERUSER))
    psql(other_db.url(SUPERUSER), dump)
    assert differences(catalog(db), catalog(other_db)) == []


# -- a schema that is there already -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "theirs",
    [
        "create table fence.posts (id integer)",
        "create function fence.paint() returns text language sql as 'select null::text'",
        "create type fence.height as enum ('low', 'high')",
        "create sequence fence.numbers",
    ],
)
def test_up_refuses_a_schema_that_is_somebody_elses(empty_db: Database, theirs: str) -> None:
    empty_db.execute("create schema fence", user="fence_owner")
    empty_db.execute(theirs, user="fence_owner")
    before = catalog(empty_db)
    with pytest.raises(SchemaMismatch, match="not pyfence's") as refused:
        migrate.up(empty_db.url("fence_owner"))
    assert refused.value.hint is not None
    assert "rename" in refused.value.hint
    assert catalog(empty_db) == before


def test_up_into_an_empty_schema_of_our_own(empty_db: Database, other_db: Database) -> None:
    empty_db.execute("create schema fence", user="fence_owner")
    empty_db.execute(f"revoke create on database {empty_db.name} from fence_owner", user=SUPERUSER)
    for database in (empty_db, other_db):
        migrate.up(database.url("fence_owner"))
    assert differences(catalog(empty_db), catalog(other_db)) == []


def test_up_into_an_empty_schema_of_another_role_is_refused(empty_db: Database) -> None:
    """Its owner could drop what is in it, and put something else there."""
    empty_db.execute("create schema fence authorization app_owner", user=SUPERUSER)
    empty_db.execute("grant usage, create on schema fence to fence_owner", user="app_owner")
    before = catalog(empty_db)
    with pytest.raises(FenceError, match="belongs to role app_owner") as refused:
        migrate.up(empty_db.url("fence_owner"))
    assert refused.value.hint is not None
    assert catalog(empty_db) == before


def test_a_schema_that_a_superuser_made_is_no_finding(empty_db: Database) -> None:
    """Whose functions run is what counts."""
    empty_db.execute("create schema fence", user=SUPERUSER)
    empty_db.execute("grant usage, create on schema fence to fence_owner", user=SUPERUSER)
    migrate.up(empty_db.url("fence_owner"))
    found = empty_db.execute("select code from fence.audit() where object = 'schema fence'", user="fence_owner")
    assert found == [("schema-owner-can-login",)]


@pytest.mark.parametrize("kind", ["tables", "functions", "sequences", "types", "schemas"])
def test_hostile_default_privileges_reach_no_object(empty_db: Database, other_db: Database, kind: str) -> None:
    """Of the installing role, for one other role and for everybody."""
    rights = {"functions": "execute", "types": "usage"}.get(kind, "all")
    empty_db.execute(f"alter default privileges grant {rights} on {kind} to outsider, public", user="fence_owner")
    for database in (empty_db, other_db):
        migrate.up(database.url("fence_owner"))
    given = [
        key
        for key in catalog(empty_db)
        if ("outsider may" in key or "public may" in key) and not key.startswith(("type ", "default privileges"))
    ]
    assert given == []
