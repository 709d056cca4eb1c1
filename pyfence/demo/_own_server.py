"""A stage of the demo's own: a new server with one database, on which nobody but the demo plays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pyfence import _server, migrate
from pyfence.demo import _sql
from pyfence.demo._signals import uninterrupted
from pyfence.demo._stage import Stage, StageError, build_tables, protect, text

DATABASE = "demo"
SCHEMA = "app"
FENCE_OWNER, REPORT_OWNER, WORKER, LEGACY = ROLES = ("fence_owner", "report_owner", "report_app", "legacy_job")


@contextmanager
def own_server(*, keep: bool) -> Iterator[Stage]:
    """A new server, migrated by a role that is no superuser. Stopped and removed at the end.

    `keep`: it stays up after a story that was played to its end, and `left_behind` says how to reach and stop it.
    Raises StageError where there is no server to be had.
    """
    with _without_libpq_settings():
        server = _server.Server(outlive=keep)
        stays = False
        try:
            server.start()
            with _built(server) as stage:
                yield stage
            if keep:
                stage.left_behind += _addresses(server)
                stays = True
        except _server.ServerError as error:
            raise StageError(str(error)) from error
        finally:
            if not stays:
                with uninterrupted():
                    server.stop()


@contextmanager
def _built(server: _server.Server) -> Iterator[Stage]:
    with psycopg.connect(server.url(), autocommit=True) as superuser:
        for role in ROLES:
            superuser.execute(text(_sql.CREATE_ROLE, role=sql.Identifier(role)))
        database, owner = sql.Identifier(DATABASE), sql.Identifier(FENCE_OWNER)
        superuser.execute(text(_sql.CREATE_DATABASE, name=database, role=owner))
    with psycopg.connect(server.url(DATABASE), autocommit=True) as superuser:
        schema, owner = sql.Identifier(SCHEMA), sql.Identifier(REPORT_OWNER)
        superuser.execute(text(_sql.CREATE_SCHEMA_FOR, schema=schema, role=owner))
    migrate.up(server.url(DATABASE, user=FENCE_OWNER))
    with psycopg.connect(server.url(DATABASE, user=FENCE_OWNER), autocommit=True) as fence_owner:
        for role, kind in ((REPORT_OWNER, "admin"), (WORKER, "client")):
            for (statement,) in fence_owner.execute(_sql.ROLE_GRANTS, (role, kind)).fetchall():
                fence_owner.execute(statement)
    with psycopg.connect(server.url(DATABASE, user=REPORT_OWNER), autocommit=True) as report_owner:
        build_tables(report_owner, SCHEMA)
        for role in (WORKER, LEGACY):
            for statement in _sql.GRANT_WRITES:
                report_owner.execute(text(statement, schema=schema, role=sql.Identifier(role)))
        protect(report_owner, SCHEMA, "report")
        yield Stage(
            worker_url=server.url(DATABASE, user=WORKER),
            legacy_url=server.url(DATABASE, user=LEGACY),
            schema=SCHEMA,
            prefix="report",
            watcher=report_owner,
            described=f"PostgreSQL {server.version}, a server of the demo's own",
        )


def _addresses(server: _server.Server) -> list[str]:
    return [
        f"superuser    {server.url(DATABASE)}",
        f"application  {server.url(DATABASE, user=WORKER)}",
        f"legacy job   {server.url(DATABASE, user=LEGACY)}",
        f"stop it      {server.stop_command}",
        f"its folder   {server.directory}  (once the server is stopped, the next run removes it)",
    ]


@contextmanager
def _without_libpq_settings() -> Iterator[None]:
    """PGSSLMODE, PGSERVICE and their like are meant for the caller's own servers; players inherit the environment."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PG")}
    try:
        yield
    finally:
        os.environ.update(taken)
