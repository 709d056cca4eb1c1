"""A stage in a given database: a scratch schema, and pyfence where it is not installed yet; both for a short while."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from pyfence import migrate
from pyfence._connect import plain_url
from pyfence.demo import _sql
from pyfence.demo._signals import uninterrupted
from pyfence.demo._stage import Connection, Stage, StageError, build_tables, protect, report_name, text

ROWS = (1, 2)


@contextmanager
def scratch_schema(url: str, *, keep: bool) -> Iterator[Stage]:
    """A new schema in the database at `url`, played in by the role that the URL names. Removed at the end.

    `keep`: it stays, and `left_behind` says how to remove it. Raises StageError, and changes nothing, where the role
    lacks a right that this takes.
    """
    url = plain_url(url)
    with _connected(url) as connection:
        install = _must_install(connection)
        with _installed(connection, url, keep=keep) if install else nullcontext():
            schema = _create_schema(connection)
            stage = Stage(
                worker_url=url,
                legacy_url=url,
                schema=schema,
                prefix=f"{schema}.report",  # meets no name of anybody else's
                watcher=connection,
                described=f"PostgreSQL {_version(connection)}, schema {schema} of the given database",
            )
            stays = False
            try:
                build_tables(connection, schema)
                protect(connection, schema, stage.prefix)
                yield stage
                stays = keep
            finally:
                with uninterrupted():
                    _close(stage, stays=stays, installed=install)


def _close(stage: Stage, *, stays: bool, installed: bool) -> None:
    """End what the players have left open, and remove the schema unless it `stays`."""
    connection = stage.watcher
    connection.execute(_sql.WAIT_BRIEFLY)
    drop = text(_sql.DROP_SCHEMA, schema=sql.Identifier(stage.schema))
    leases = [stage.resource(row) for row in ROWS]
    for resource in leases:  # of players that were ended in the middle
        with suppress(psycopg.Error):
            connection.execute(_sql.REVOKE, (resource,))
    if stays:
        unprotect = text(_sql.UNPROTECT.replace("%s", "{name}"), name=sql.Literal(report_name(stage.schema)))
        stage.left_behind.append(f"schema {stage.schema}; remove it with:")
        stage.left_behind += [f"  {statement.as_string(connection)};" for statement in (unprotect, drop)]
        if installed:
            stage.left_behind.append("schema fence, which was not there before; remove it with: pyfence migrate down")
    else:
        with suppress(psycopg.Error):  # not protected: the story ended that early, or somebody else has done it
            connection.execute(_sql.UNPROTECT, (report_name(stage.schema),))
        connection.execute(drop)
    if not installed:
        stage.left_behind.append(
            f"the lease rows of {' and '.join(leases)}: pyfence never forgets a token that it has given"
        )


# -- what the database and the role must have -------------------------------------------------------------------------


def _must_install(connection: Connection) -> bool:
    """Whether pyfence has to be installed first. Raises StageError where the role may not do what the demo does."""
    may_create, role, database, in_recovery = _one(connection, _sql.MAY_CREATE)
    if in_recovery:
        raise StageError("this server is a standby and accepts no writes: name its primary")
    if not may_create:
        raise StageError(
            f"role {role} may not create the demo's scratch schema in database {database}; "
            f"as the database's owner: grant create on database {database} to {role}"
        )
    has_schema, _, has_functions, may_look = _one(connection, _sql.INSTALLED)
    if not has_schema:
        return True
    if not may_look:
        raise StageError(f"role {role} may not use pyfence here; as an administrator: {_role_add(role)}")
    if not has_functions:
        return True
    rows = connection.execute(_sql.MISSING_RIGHTS, (_sql.NEEDED,)).fetchall()
    if rows:
        missing = ", ".join(f"fence.{name}" for (name,) in rows)
        raise StageError(f"role {role} may not call {missing}; as an administrator: {_role_add(role)}")
    (version,) = _one(connection, _sql.SCHEMA_VERSION)
    if version != migrate.head():
        raise StageError(
            f"pyfence is at revision {version} in database {database}, and this version needs {migrate.head()}; "
            "as an administrator: pyfence migrate up"
        )
    return False


def _role_add(role: str) -> str:
    return f"pyfence role add {role} --as client; pyfence role add {role} --as admin"


@contextmanager
def _installed(connection: Connection, url: str, *, keep: bool) -> Iterator[None]:
    """pyfence for the length of the demo, in a database without it; afterwards what was there before."""
    had_schema, had_versions, _, _ = _one(connection, _sql.INSTALLED)
    migrate.up(url)
    played = False
    try:
        yield
        played = True
    finally:
        if not (keep and played):
            with uninterrupted():
                migrate.down(url)
                if not had_versions:
                    connection.execute(_sql.DROP_VERSION_TABLE)
                if not had_schema:
                    connection.execute(_sql.DROP_FENCE)


def _create_schema(connection: Connection) -> str:
    """The first name that is free: so the leases of repeated demos, whose rows stay, are the same few."""
    for number in itertools.count(1):
        name = "pyfence_demo" if number == 1 else f"pyfence_demo_{number}"
        with suppress(psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation):
            connection.execute(text(_sql.CREATE_SCHEMA, schema=sql.Identifier(name)))
            return name
    raise AssertionError("there are numbers enough")


# -- small things -----------------------------------------------------------------------------------------------------


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    try:
        patience = {} if "connect_timeout" in conninfo_to_dict(url) else {"connect_timeout": 10}  # seconds
        connection: Connection = psycopg.connect(url, autocommit=True, **patience)  # type: ignore[arg-type]
    except psycopg.Error as error:
        raise StageError(f"cannot connect to the given database: {error}") from error
    with connection:
        yield connection


def _one(connection: Connection, query: LiteralString) -> tuple[Any, ...]:
    found = connection.execute(query).fetchone()
    assert found is not None
    return tuple(found)


def _version(connection: Connection) -> str:
    return connection.info.parameter_status("server_version") or "?"
