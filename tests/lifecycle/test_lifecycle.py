"""Real schemas, from the installation to the removal: all protected at once, loaded, written, dumped, restored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from cli.command import CommandLine
from harness import SUPERUSER, Database, install
from restore.dumps import dump, load, run, target

import pyfence

HERE = Path(__file__).parent


def snake(text: str) -> str:
    """`"CamelCase"` as camel_case, as newer versions of that schema are written."""
    return re.sub(r'"(\w+)"', lambda m: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", m[1]).lower(), text)


@dataclass(frozen=True)
class Shape:
    """A schema, its data, how it is protected, and a write to it."""

    ddl: str
    data: str
    protect: tuple[str, ...]
    tables: int
    #: A row's resource, an update of it, and what it says then.
    write: tuple[str, str, str, object]


def _read(name: str) -> str:
    return (HERE / name).read_text("utf-8")


ALL = ("--all", "--schema", "public", "--covering", "maintenance", "--yes")
KEYED = ("--resource-template", "{@table}:{@key}")
TRACK = 'update public."Track" set "UnitPrice" = 1.29 where "TrackId" = 2'
PRICE = 'select "UnitPrice"::text from public."Track" where "TrackId" = 2'
SHAPES = {
    "pagila": Shape(
        _read("pagila.sql"),
        _read("pagila_data.sql"),
        (*ALL, *KEYED, "--for", "public.payment", "customer:{customer_id}"),
        11,
        (
            "film:1",
            "update public.film set title = 'ACADEMY OF GOLD' where film_id = 1",
            "select (fulltext @@ 'gold'::tsquery)::text || last_update::date from public.film where film_id = 1",
            "true2022-02-15",
        ),
    ),
    "chinook": Shape(
        _read("chinook.sql"), _read("chinook_data.sql"), (*ALL, *KEYED), 7, ("Track:2", TRACK, PRICE, "1.29")
    ),
    "chinook in snake case": Shape(
        snake(_read("chinook.sql")),
        snake(_read("chinook_data.sql").replace('"Tom"', "Tom")),
        (*ALL, *KEYED),
        7,
        ("track:2", snake(TRACK), snake(PRICE), "1.29"),
    ),
}


def schema_of(db: Database) -> str:
    """The whole schema as a dump without its random line."""
    return re.sub(r"^\\(un)?restrict .*$", "", dump(db, "--schema-only"), flags=re.MULTILINE)


def data_of(db: Database) -> str:
    return re.sub(r"^\\(un)?restrict .*$", "", dump(db, "--data-only", "-n", "public"), flags=re.MULTILINE)


@pytest.mark.parametrize("name", SHAPES)
def test_a_schema_from_the_installation_to_the_removal(empty_db: Database, name: str) -> None:
    db, shape = empty_db, SHAPES[name]
    owner, dba = CommandLine(db.url("app_owner")), CommandLine(db.url(SUPERUSER))
    load(db, shape.ddl, user="app_owner")
    before = schema_of(db)

    install(db.url("fence_owner"))
    plan = owner("protect", *shape.protect, "--json").json
    assert [step["action"] for step in plan["plan"]] == ["protect"] * shape.tables
    assert plan["applied"] is True
    assert owner("doctor", "--json", code=None).json["counts"]["error"] == 0

    # An unaware load is refused at its first row; one under the covering lease is the same as an unprotected one.
    unaware = run(db, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", db.url("app"), feed=shape.data)
    assert (unaware.returncode, "without a claim" in unaware.stderr) == (3, True), unaware.stderr
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("maintenance")
        claim = f"begin; select fence.present('maintenance', {lease.token}, '{lease.claim.secret}');"
        load(db, f"{claim}\n{shape.data}\ncommit;", user="app")
        lease.release()
        with target(db) as reference:
            load(reference, shape.ddl, user="app_owner")
            load(reference, shape.data, user="app_owner")
            assert data_of(db) == data_of(reference)

        # One row under its own lease; its neighbours are somebody else's.
        resource, statement, question, answer = shape.write
        with fence.lease(resource, ttl=30) as row:
            with row.transaction() as conn:
                conn.execute(statement.encode())
            with pytest.raises(pyfence.WrongResource), row.transaction() as conn:
                conn.execute(re.sub(r" where .*", "", statement).encode())
            token = row.token
    assert db.execute(question) == [(answer,)]

    with target(db, dummies=20) as copy:
        load(copy, dump(db))
        assert copy.execute(question) == [(answer,)]
        there = CommandLine(copy.url("app_owner"))
        assert there("doctor", "--json", code=None).json["counts"]["error"] == 0
        with pytest.raises(psycopg.DatabaseError) as refused:
            copy.execute(statement, user="outsider")
        assert refused.value.sqlstate == "LF004"
        ((newer,),) = copy.execute("select token from fence.acquire(%s)", (resource,), user="app")
        assert newer > token

    error = CommandLine(db.url("fence_owner"))("uninstall", "--yes", "--json", code=1).error
    assert f"{shape.tables} tables are protected" in error["message"]
    done = dba("uninstall", "--unprotect", "--yes", "--json").json
    assert (len(done["unprotected"]), done["schema_dropped"]) == (shape.tables, True)
    assert schema_of(db) == before
