"""Install, upgrade, inspect and remove schema `fence`.

Every function takes a URL, or an open psycopg or SQLAlchemy connection, or an engine. A URL and an engine get a
connection and a transaction of their own, committed on success. An open connection's transaction is joined and left for
the caller to commit; a connection in autocommit mode gets a transaction of its own.

Whatever is asked for happens in one transaction, under one transaction-level advisory lock: concurrent upgrades queue,
and one that is killed leaves nothing behind. Errors are `pyfence.FenceError`s; none shows a URL or a password.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import alembic.command
import alembic.context
import alembic.op
import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from pyfence import _resources
from pyfence._migration_branch import PREFIX
from pyfence._migration_guards import unprotect_all
from pyfence._migration_ops import SCHEMA, VERSION_TABLE, created
from pyfence._migration_roles import make_group_roles, require_group_roles
from pyfence._migration_target import Target, connected
from pyfence.errors import BadArgument, FenceError, SchemaMismatch, from_driver

__all__ = ["Uninstalled", "check", "current", "down", "head", "sql", "stamp", "uninstall", "up"]

_ALEMBIC = threading.RLock()  # Alembic keeps its running environment in module globals


def up(target: Target, revision: str = "head", *, with_roles: bool = False) -> None:
    """Upgrade to `revision`, from whatever is there. Safe to call at every start, from any number of processes.

    Needs CREATE on the database the first time, and afterwards to be the schema's owner. `with_roles` also gives the
    cluster's group roles fence_client, fence_admin and fence_monitor their rights, and makes those that are missing,
    which needs CREATEROLE.

    Raises `FenceError`; `SchemaMismatch` if the objects are there but no version is recorded.
    """
    with _migrating(target, f"upgrade to {revision}") as (connection, config):
        if with_roles:
            require_group_roles(connection)
        alembic.command.upgrade(config, revision)
        if with_roles:
            make_group_roles(connection)


def down(target: Target, revision: str = "base") -> None:
    """Go back to `revision`. `base` removes every object of pyfence but the schema and its empty version table.

    All leases are forgotten; tokens of a later `up` are still above the old ones. Raises `FenceError`, and changes
    nothing, while a table is protected or anything of a user's depends on pyfence's objects.
    """
    with _migrating(target, f"downgrade to {revision}") as (_, config):
        alembic.command.downgrade(config, revision)


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """What `uninstall` has removed beside pyfence's objects: guards of tables, and the schema itself."""

    unprotected: list[str]
    schema_dropped: bool


def uninstall(target: Target, *, unprotect: bool = False) -> Uninstalled:
    """Remove everything of pyfence, schema included unless it is another role's. All leases are forgotten.

    With `unprotect` the guards go first, for which the session must be able to act as the owner of every protected
    table; then it acts as the owner of pyfence's objects, if it may. Raises `FenceError`, and changes nothing, while a
    table is protected (without `unprotect`), or while anything of a user's depends on pyfence or lies in its schema.
    """
    with _translated("uninstalling"), connected(target) as connection:
        owner = connection.exec_driver_sql(
            "select pg_catalog.pg_get_userbyid(c.relowner) from pg_catalog.pg_class c"
            " where c.oid = pg_catalog.to_regclass(%s)",
            (f"{SCHEMA}.{VERSION_TABLE}",),
        ).scalar_one_or_none()
        if owner is None:
            raise SchemaMismatch(f"schema {SCHEMA} is not installed; there is nothing to remove")
        tables = unprotect_all(connection) if unprotect else []
        with _acting_as(connection, str(owner)):
            down(connection)
            connection.exec_driver_sql(f"drop table {SCHEMA}.{VERSION_TABLE}")
            ours = connection.exec_driver_sql(
                "select pg_catalog.pg_has_role(nspowner, 'usage') from pg_catalog.pg_namespace where nspname = %s",
                (SCHEMA,),
            ).scalar_one()
            if ours:
                connection.exec_driver_sql(f"drop schema {SCHEMA}")
        return Uninstalled(tables, bool(ours))


@contextmanager
def _acting_as(connection: Connection, role: str) -> Iterator[None]:
    """Act as another role until the end of the block, if the session may; else as before."""
    before, may = connection.exec_driver_sql(
        "select pg_catalog.current_setting('role'),"
        " current_user <> %s and pg_catalog.pg_has_role(session_user, %s, 'member')",
        (role, role),
    ).one()
    change = "select pg_catalog.set_config('role', %s, true)"
    if may:
        connection.exec_driver_sql(change, (role,))
    yield
    if may:
        connection.exec_driver_sql(change, (before,))


def current(target: Target) -> str | None:
    """Return the database's revision; None where nothing is installed. Raises `FenceError` if it cannot be read."""
    with _translated("reading the schema's revision"), connected(target) as connection:
        return _revision(connection)


def head() -> str:
    """Return the revision that this version of pyfence needs."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None
    return newest


def check(target: Target) -> str:
    """Return the database's revision if it is the one this version needs and its objects are there.

    Raises `SchemaMismatch` otherwise; the message says which of the two is behind and what to do.
    """
    with _translated("checking the schema"), connected(target) as connection:
        found = _revision(connection)
        if found is None:
            raise SchemaMismatch(f"schema {SCHEMA} is not installed; run: pyfence migrate up")
        if found.startswith(PREFIX) and found.removeprefix(PREFIX) in _revisions():
            # A branch of the application's migrations; its revisions are ours under another name.
            found = found.removeprefix(PREFIX)
        if found not in (known := _revisions()):
            raise SchemaMismatch(
                f"schema {SCHEMA} is at revision {found}, which this version of pyfence does not know; upgrade pyfence"
            )
        if found != known[-1]:
            raise SchemaMismatch(
                f"schema {SCHEMA} is behind: at revision {found}, needed {known[-1]}; run: pyfence migrate up"
            )
        if missing := _missing(connection, found):
            raise SchemaMismatch(f"schema {SCHEMA} is at revision {found} but lacks {', '.join(missing)}")
        return found


def sql(revisions: str = "head") -> str:
    """Return a migration as plain SQL for a DBA, without a connection.

    `revisions` is `from:to`, such as `base:head`, `0001:0002` or (down) `0001:base`; a single revision means from
    `base`. The script is one transaction, queues like `up`, and stops unless the database is where it starts.
    """
    start, _, end = revisions.rpartition(":")
    known = ["base", *_revisions()]
    positions = []
    for name in (start or "base", end):
        name = known[-1] if name in ("head", "heads") else name
        if name not in known:
            raise BadArgument(f"unknown revision {name!r}; known: {', '.join(known)}")
        positions.append(known.index(name))
    before, after = positions
    if before == after:
        raise BadArgument(f"nothing to do from {known[before]} to {known[after]}")
    command = alembic.command.upgrade if before < after else alembic.command.downgrade
    output = io.StringIO()
    with _translated("writing a script"), _environment():
        command(_config(output), f"{known[before]}:{known[after]}", sql=True)
    header = f"-- pyfence, {known[before]} to {known[after]}. Apply it with: psql -v ON_ERROR_STOP=1 -f FILE\n\n"
    return header + output.getvalue()


def stamp(target: Target, revision: str = "head") -> None:
    """Record `revision` without running anything: for a schema that was installed from a script or from `sql/`.

    Raises `SchemaMismatch`, and records nothing, unless that revision's objects are there (for `base`: none of them).
    """
    known = _revisions()
    revision = known[-1] if revision in ("head", "heads") else revision
    if revision != "base" and revision not in known:
        raise BadArgument(f"unknown revision {revision!r}; known: base, {', '.join(known)}")
    with _translated(f"stamping {revision}"), connected(target) as connection:
        if revision == "base":
            if present := sorted(_objects(known[-1]) & _existing(connection)):
                raise SchemaMismatch(f"cannot stamp base: schema {SCHEMA} still holds {', '.join(present)}")
        elif missing := _missing(connection, revision):
            raise SchemaMismatch(f"cannot stamp {revision}: schema {SCHEMA} lacks {', '.join(missing)}")
        with _environment():
            config = _config()
            config.attributes["connection"] = connection
            alembic.command.stamp(config, revision)


def _config(output: io.StringIO | None = None) -> Config:
    """Configure Alembic for the environment inside the package. Reads no file and prints nothing."""
    config = Config(output_buffer=output or io.StringIO(), stdout=io.StringIO())
    config.set_main_option("script_location", str(_resources.migrations_dir()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _environment() -> Iterator[None]:
    """Run one environment at a time, and give the caller's own back: `up` may be called from inside a migration."""
    with _ALEMBIC:
        outer = [getattr(module, "_proxy", None) for module in (alembic.context, alembic.op)]
        try:
            yield
        finally:
            for proxy in outer:
                if proxy is not None:
                    proxy._install_proxy()


@contextmanager
def _migrating(target: Target, what: str) -> Iterator[tuple[Connection, Config]]:
    with _translated(what), connected(target) as connection, _environment():
        config = _config()
        config.attributes["connection"] = connection
        yield connection, config


def _revisions() -> list[str]:
    """List the revisions, oldest first. There is one line of them."""
    script = ScriptDirectory.from_config(_config())
    return [step.revision for step in script.walk_revisions()][::-1]


def _revision(connection: Connection) -> str | None:
    """Read the version table, if there is one."""
    table = f"{SCHEMA}.{VERSION_TABLE}"
    there = "select pg_catalog.to_regclass(%s) is not null"
    if not connection.exec_driver_sql(there, (table,)).scalar_one():
        return None
    found = connection.exec_driver_sql(f"select version_num from {table}").scalar_one_or_none()  # noqa: S608
    return None if found is None else str(found)


def _objects(revision: str) -> set[str]:
    """Name the functions, tables and views that exist at `revision`, going by what the frozen files create."""
    revisions = _revisions()
    return {
        name.removeprefix(f"{SCHEMA}.")
        for step in revisions[: revisions.index(revision) + 1]
        for kind, name in created(_resources.frozen_dir() / step / "up")
        if kind in ("function", "table", "view")
    }


def _existing(connection: Connection) -> set[str]:
    """Name the functions, tables and views in the schema."""
    rows = connection.exec_driver_sql(
        "select proname::text from pg_catalog.pg_proc where pronamespace = pg_catalog.to_regnamespace(%s)"
        " union select relname::text from pg_catalog.pg_class where relnamespace = pg_catalog.to_regnamespace(%s)",
        (SCHEMA, SCHEMA),
    )
    return set(rows.scalars())


def _missing(connection: Connection, revision: str) -> list[str]:
    """List what `revision` has and the schema lacks."""
    return sorted(_objects(revision) - _existing(connection))


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn the errors of the driver, SQLAlchemy and Alembic into pyfence's own; the driver's stays as the cause."""
    try:
        yield
    except DBAPIError as exc:
        _fail(what, exc.orig if isinstance(exc.orig, psycopg.Error) else exc)
    except (psycopg.Error, CommandError) as exc:
        _fail(what, exc)


def _fail(what: str, exc: Exception) -> NoReturn:
    if (ours := from_driver(exc)) is not None:
        raise ours
    kind, message, detail, hint = FenceError, str(exc), None, None
    if isinstance(exc, psycopg.Error) and exc.diag.message_primary:
        message, detail, hint = exc.diag.message_primary, exc.diag.message_detail, exc.diag.message_hint
    if isinstance(exc, psycopg.errors.DuplicateTable | psycopg.errors.DuplicateFunction):
        kind = SchemaMismatch
        detail = f"Schema {SCHEMA} holds objects, but no revision is recorded."
        hint = "If they are pyfence's own, record what they are: pyfence migrate stamp"
    if isinstance(exc, CommandError) and "Can't locate revision" in message:
        kind = SchemaMismatch
        if f"'{PREFIX}" in message:
            message = f"schema {SCHEMA} is migrated as a branch of an application's Alembic environment"
            raise kind(
                f"{what} failed: {message}",
                hint="Use that environment: alembic upgrade fence@head. Never both on one database.",
            ) from exc
        hint = f"This version of pyfence knows {', '.join(_revisions())}; a newer one may be needed."
    if hint and "CASCADE" in hint:  # the server's advice would drop what a user built
        hint = "Nothing was removed. Drop or change those objects first, if they may go."
    notes = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
    raise kind(f"{what} failed: {message}{notes}", detail=detail, hint=hint) from exc
