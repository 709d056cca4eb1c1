"""Where the benchmark runs: a server of its own, or a given database; its tables, guards and leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pyfence import _server, migrate
from pyfence._connect import plain_url
from pyfence.bench import _sql

Connection = psycopg.Connection[Any]

DATABASE = "bench"
FENCE_OWNER, WRITER = "fence_owner", "writer"
# Nothing but the work itself: no autovacuum and no checkpoint in the middle of a run.
SETTINGS: dict[str, str | int | bool] = {
    "autovacuum": False,
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
}


class BenchError(RuntimeError):
    """The benchmark cannot run here; the text says why, and what to do about it."""


class Place:
    """A scratch schema, the connection whose backend is measured, and one of the tables' owner for everything else."""

    def __init__(self, owner: Connection, connection: Connection, described: str) -> None:
        self.owner = owner
        self.connection = connection
        self.described = described
        self._protected: list[str] = []
        self._leases: list[tuple[str, int, str]] = []

    def table(self, name: str, rows: int) -> sql.Identifier:
        """A new table with so many rows, of `TENANTS` tenants."""
        table = sql.Identifier(_sql.SCHEMA, name)
        self.owner.execute(text(_sql.CREATE_TABLE, table=table))
        self.owner.execute(text(_sql.FILL_TABLE, table=table), (_sql.TENANTS, rows))
        self.owner.execute(text(_sql.ANALYZE, table=table))
        return table

    def upsert_table(self) -> sql.Identifier:
        """A new table for the home-made lock."""
        table = sql.Identifier(_sql.SCHEMA, "upsert")
        self.owner.execute(text(_sql.CREATE_UPSERT_TABLE, table=table))
        return table

    def protect(
        self, table: sql.Identifier, template: str, tenants: Iterable[int] | None = None
    ) -> list[tuple[str, int, str]]:
        """Guard a table, and take the leases on its tenants (None: on the one resource of the table)."""
        name = table.as_string(self.owner)
        self.owner.execute(_sql.PROTECT, (name, self.resource(template)))
        self._protected.append(name)
        names = [template] if tenants is None else [template.format(tenant=tenant) for tenant in tenants]
        claims = [(resource, *self.acquire(resource)) for resource in sorted(map(self.resource, names))]
        self._leases += claims
        return claims

    def resource(self, name: str) -> str:
        """A resource's name that meets nobody else's."""
        return f"{_sql.SCHEMA}:{name}"

    def acquire(self, resource: str) -> tuple[int, str]:
        """Token and secret of a lease. BenchError if it is held: by another benchmark, or one that was killed."""
        row = self.connection.execute(_sql.ACQUIRE, (resource,)).fetchone()
        assert row is not None
        granted, token, secret, owner = row
        if not granted:
            raise BenchError(f"{owner} holds {resource}: another benchmark runs here, or was killed within the hour")
        return token, secret

    def vacuum(self, *tables: sql.Identifier) -> Callable[[], None]:
        """What tidies up between two rounds: takes the old versions out of these tables and of the leases."""
        statements = [text(_sql.VACUUM, table=table) for table in tables]

        def run() -> None:
            for statement in statements:
                self.owner.execute(statement)
            self.owner.execute(_sql.VACUUM_LEASES)  # skipped with a warning where it is not ours

        return run

    @property
    def commits_are_durable(self) -> bool:
        """Whether the server waits for its disk at all."""
        return self.owner.execute(_sql.FSYNC).fetchone() == ("on",)

    @contextmanager
    def open(self) -> Iterator[None]:
        """The scratch schema, removed at the end, and the leases given back."""
        schema = sql.Identifier(_sql.SCHEMA)
        try:
            self.owner.execute(text(_sql.CREATE_SCHEMA, schema=schema))
        except psycopg.errors.DuplicateSchema as error:
            raise BenchError(
                f"schema {_sql.SCHEMA} exists: another benchmark runs here, or was killed; "
                f"then remove it with: drop schema {_sql.SCHEMA} cascade"
            ) from error
        try:
            writer = self.connection.info.user
            if writer != self.owner.info.user:
                for statement in _sql.LET_IN:
                    self.owner.execute(text(statement, schema=schema, role=sql.Identifier(writer)))
            yield
        finally:
            with suppress(psycopg.Error):
                self.connection.rollback()
                for lease in self._leases:
                    self.connection.execute(_sql.RELEASE, lease)
            for table in self._protected:
                with suppress(psycopg.Error):
                    self.owner.execute(_sql.UNPROTECT, (table,))
            self.owner.execute(text(_sql.DROP_SCHEMA, schema=schema))


@contextmanager
def own_server(*, durable: bool) -> Iterator[Place]:
    """A place on a new server: `durable`: on disk, with fsync; else in memory where there is room, without."""
    server = _server.Server(fsync=durable, settings=SETTINGS)
    try:
        server.start()
    except _server.ServerError as error:
        raise BenchError(str(error)) from error
    try:
        with psycopg.connect(server.url(), autocommit=True) as superuser:
            for role in (FENCE_OWNER, WRITER):
                superuser.execute(text(_sql.CREATE_ROLE, role=sql.Identifier(role)))
            names = {"name": sql.Identifier(DATABASE), "role": sql.Identifier(FENCE_OWNER)}
            superuser.execute(text(_sql.CREATE_DATABASE, **names))
        migrate.up(server.url(DATABASE, user=FENCE_OWNER))
        with psycopg.connect(server.url(DATABASE, user=FENCE_OWNER), autocommit=True) as fence_owner:
            for (statement,) in fence_owner.execute(_sql.ROLE_GRANTS, (WRITER, "client")).fetchall():
                fence_owner.execute(statement)
        where = f"PostgreSQL {server.version}, fsync {'on' if durable else 'off'}, {_file_system(server.directory)}"
        with (
            psycopg.connect(server.url(DATABASE), autocommit=True) as owner,
            psycopg.connect(server.url(DATABASE, user=WRITER), autocommit=True) as connection,
        ):
            place = Place(owner, connection, where)
            with place.open():
                yield place
    finally:
        server.stop()


@contextmanager
def given_database(url: str) -> Iterator[Place]:
    """A place in a database that has pyfence: a schema of the benchmark's own, by the role that the URL names."""
    url = plain_url(url)
    try:
        owner: Connection = psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise BenchError(f"cannot connect to the given database: {error}") from error
    with owner:
        try:
            revision = owner.execute(_sql.SCHEMA_VERSION).fetchone()
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
            revision = None
        if revision != (migrate.head(),):
            raise BenchError(f"pyfence is not installed there at revision {migrate.head()}; run: pyfence migrate up")
        version = owner.info.parameter_status("server_version")
        with psycopg.connect(url, autocommit=True) as connection:
            place = Place(owner, connection, f"PostgreSQL {version}, the given database")
            with place.open():
                yield place


def _file_system(path: Path) -> str:
    """The kind of file system that holds a folder, such as `ext4`; empty where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "file system unknown"
    holding = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return f"data on {max(holding)[1]}" if holding else "file system unknown"


def text(statement: str, **parts: sql.Composable) -> sql.Composed:
    """A statement of `_sql` with its names filled in."""
    return sql.SQL(statement).format(**parts)
