"""A revision's text reaches the server byte for byte, online and as a script."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from alembic.runtime.migration import MigrationContext
from harness import SUPERUSER, Database
from migrations.catalog import differences, snapshot

from pyfence import _migration_ops as ops

BODIES = {
    "percent": "100% %s %(x)s %% %%s %",
    "colons": "a:b :x ::text :''x'' :\"x\" {a:1} a[1:2]",
    "json": '{"a":true,"b":":id"}',
    "dollars": "$1 $$ $x$ $pyfence$ $",
    "quotes": "it''s \"quoted\" ''twice''",
    "backslashes": r"\n \\ \x :\d \. ",
    "statements": "one; two; -- three /* four */",
    "placeholders": "? ?? {} {0} %(name)s :name $1 @x",
    "lines": "one\n\n  two\t three \n",
}


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A scratch revision: one function a file, whose body and comment hold everything that gets eaten elsewhere."""
    directory = tmp_path / "0001" / "up"
    directory.mkdir(parents=True)
    (directory / "00.sql").write_bytes(b"create schema scratch;\ncreate table scratch.t (a int[], b jsonb);")
    for name, body in BODIES.items():
        (directory / f"{name}.sql").write_bytes(
            f"-- {body!r}: a comment is text too: :x %s\n"
            f"create function scratch.{name}() returns text language sql as $body$ select '{body}' $body$;\n"
            f"comment on function scratch.{name}() is '{body}';".encode()
        )
    return directory


def online(url: str, directory: Path) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        ops.run_directory(MigrationContext.configure(connection=connection), directory)
    engine.dispose()


def script(directory: Path) -> str:
    output = io.StringIO()
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": output})
    ops.run_directory(context, directory)
    return output.getvalue()


def test_byte_for_byte(empty_db: Database, other_db: Database, frozen: Path, psql: Callable[..., str]) -> None:
    online(empty_db.url(SUPERUSER), frozen)
    psql(other_db.url(SUPERUSER), script(frozen))
    found = []
    for database in (empty_db, other_db):
        with psycopg.connect(database.url(SUPERUSER)) as connection:
            found.append(snapshot(connection, "scratch"))
            for name, body in BODIES.items():
                expected = body.replace("''", "'")
                row = connection.execute(
                    "select prosrc, obj_description(oid, 'pg_proc') from pg_proc where proname = %s", (name,)
                ).fetchone()
                assert row == (f" select '{body}' ", expected)
                assert connection.execute(f"select scratch.{name}()").fetchone() == (expected,)
    assert differences(*found) == []


def test_the_naive_way_fails(empty_db: Database, frozen: Path) -> None:
    """What this guards against: the same files through `text()`, as `op.execute` runs a string."""
    engine = sqlalchemy.create_engine(empty_db.url(SUPERUSER).replace("postgresql:", "postgresql+psycopg:"))
    failed = 0
    for name in BODIES:
        with engine.connect() as connection:
            context = MigrationContext.configure(connection=connection)
            context.execute("create schema scratch")
            try:
                context.execute((frozen / f"{name}.sql").read_text("utf-8"))
            except sqlalchemy.exc.SQLAlchemyError:
                failed += 1
    engine.dispose()
    assert failed > 0


def test_a_failing_file_is_named(empty_db: Database, frozen: Path) -> None:
    (frozen / "zz.sql").write_text("create function scratch.zz() returns text;", encoding="utf-8")
    with pytest.raises(psycopg.Error) as failed:
        online(empty_db.url(SUPERUSER), frozen)
    assert failed.value.__notes__ == ["in 0001/up/zz.sql"]


def test_an_empty_directory_is_an_error(empty_db: Database, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        online(empty_db.url(SUPERUSER), tmp_path)
