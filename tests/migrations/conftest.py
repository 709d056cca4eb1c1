"""Fixtures of the migration tests: the client programs of the server, and a schema installed straight from sql/."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from harness import SUPERUSER, Cluster, Database
from migrations.catalog import Snapshot, snapshot

from pyfence import _resources

VERSION_TABLE = "fence.alembic_version"

Program = Callable[..., str]


@pytest.fixture
def program(cluster: Cluster) -> Program:
    """`program("psql", url, ..., text=script)` runs a client program to its end and returns its output."""

    def run(name: str, *arguments: str, text: str | None = None, fails: bool = False) -> str:
        path = Path(cluster.server.programs.path(name))
        if not path.exists():
            pytest.skip(f"this PostgreSQL comes without {name}")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        done = subprocess.run(
            [path, *arguments], input=text, capture_output=True, text=True, env=environment, timeout=60
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture
def psql(program: Program) -> Callable[..., str]:
    """`psql(url, script)` runs a script the way a DBA does, stopping at the first error."""

    def run(url: str, script: str, *, fails: bool = False) -> str:
        return program("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, text=script, fails=fails)

    return run


def catalog(database: Database, *, version_table: bool = True) -> Snapshot:
    """The catalog of a test's database, as a superuser sees it."""
    ignore = () if version_table else (VERSION_TABLE,)
    with psycopg.connect(database.url(SUPERUSER)) as connection:
        return snapshot(connection, ignore=ignore)


def install_from(directory: Path, url: str) -> None:
    """Run the SQL files of a directory one after the other, as they are."""
    with psycopg.connect(url) as connection:
        for path in _resources.sql_files(directory):
            connection.execute(path.read_bytes(), prepare=False)


@pytest.fixture
def other_db(cluster: Cluster) -> Iterator[Database]:
    """A second empty database, to compare with."""
    database = Database(cluster, empty=True)
    yield database
    database.close()
