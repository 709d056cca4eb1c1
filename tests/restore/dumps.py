"""pg_dump, pg_restore and psql, and a database worth dumping."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from guards.scene import acquire, contents, present, protect, supersede
from harness import Database
from trees import forest

#: The plain tables beside the partitioned one, and the leaf of an inheritance tree.
TABLES = ("public.report", "public.nightly", "public.t", "public.base")


def run(database: Database, program: str, *arguments: str, feed: str | None = None) -> subprocess.CompletedProcess[str]:
    """A program of the server's own version; whoever calls looks at the exit code."""
    path = database.cluster.server.programs.path(program)
    if not Path(path).is_file():  # some packages hold the server alone; another major's dump is another test's
        pytest.skip(f"there is no {program} beside the server")
    return subprocess.run([path, *arguments], input=feed, capture_output=True, text=True, timeout=100)


def succeed(database: Database, program: str, *arguments: str, feed: str | None = None) -> str:
    done = run(database, program, *arguments, feed=feed)
    assert done.returncode == 0, done.stderr
    return done.stdout


def dump(database: Database, *options: str, user: str = "postgres") -> str:
    """A plain dump, as text."""
    return succeed(database, "pg_dump", *options, database.url(user))


def dump_to(database: Database, path: Path, *options: str) -> Path:
    succeed(database, "pg_dump", "-f", str(path), *options, database.url("postgres"))
    return path


def load(database: Database, script: str, *, user: str = "postgres") -> str:
    """psql, stopping at the first error."""
    return succeed(database, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", database.url(user), feed=script)


@dataclass
class Scene:
    """What a restored database must still know."""

    tokens: dict[str, int] = field(default_factory=dict)
    triggers: dict[tuple[str, str], str] = field(default_factory=dict)
    rows: dict[str, list[object]] = field(default_factory=dict)


def build(db: Database) -> Scene:
    """Guarded tables of every kind with rows in them, and leases that had several holders."""
    db.execute("create table public.report (id int primary key, body text, fence_token bigint)")
    db.execute("create table public.nightly (id int primary key)")
    db.execute("create table public.base (id int, body text)")
    db.execute("create table public.derived () inherits (public.base)")
    db.execute("insert into public.nightly values (1)")
    db.execute("insert into public.derived values (1, 'old')")
    forest.plant(db)
    protect(db, "public.report", "report:{id}", p_token_column="fence_token", p_writes="sequenced")
    protect(db, "public.nightly", "nightly", p_writes="once", p_expiry="until_superseded")
    protect(db, "public.base", "{@schema}.{@table}:{id}")
    scene = Scene()
    connection = db.connect("app")
    for resource in ("report:1", "nightly", "tenant:a"):
        lease = supersede(db, acquire(db, resource))
        scene.tokens[resource] = lease.token
        if resource == "report:1":
            connection.execute("select fence.present(%s, %s, %s, 7)", lease.parameters)
            connection.execute("insert into public.report values (1, 'old')")
            connection.commit()
        elif resource == "nightly":
            present(connection, lease)
            connection.execute("update public.nightly set id = id")
            connection.commit()
    scene.triggers = forest.guard_triggers(db)
    scene.rows = {table: contents(db, table) for table in TABLES}
    return scene


WRITES = (
    "update public.report set body = 'new'",
    "insert into public.nightly values (9)",
    "delete from public.t",
    "update public.feb_b set body = 'new'",
    "insert into public.jan (id, tenant, day) values (9, 'a', '2026-01-01')",
    "update public.derived set body = 'new'",
    "truncate public.t",
    "truncate public.rest",
    "truncate public.report",
)


def unarmed(db: Database) -> list[str]:
    return [name for (name,) in db.execute("select table_name from fence.protected_tables where not armed")]


def check(db: Database, scene: Scene, *, data: bool = True) -> None:
    """The guards stand with no command run, and tokens go on above every earlier one."""
    assert unarmed(db) == []
    assert len(db.execute("select id from fence.protected_tables where protected_table is not null")) == 4
    assert forest.guard_triggers(db) == scene.triggers
    connection = db.connect("app")
    for statement in WRITES:
        assert forest.attempt(connection, statement) == "LF004", statement
    if data:
        assert {table: contents(db, table) for table in TABLES} == scene.rows
    for resource, token in scene.tokens.items():
        db.execute("select fence.revoke(%s, 'restored')", (resource,))
        lease = acquire(db, resource)
        assert lease.token > token
        if resource == "tenant:a" and data:
            assert forest.attempt(connection, "update public.jan set body = 'new' where id = 1", lease) == 1
    errors = db.execute("select code, object, detail from fence.audit() where severity = 'error'")
    assert errors == []


@contextmanager
def target(db: Database, *, empty: bool = True, dummies: int = 0) -> Iterator[Database]:
    """Another database of the same cluster, in which oids differ."""
    other = Database(db.cluster, empty=empty)
    try:
        with psycopg.connect(other.url("postgres"), autocommit=True) as connection:
            connection.execute("create schema dummies")
            for number in range(dummies):
                connection.execute(f"create table dummies.d{number} ()")
        yield other
    finally:
        other.close()
