"""`pyfence migrate`: install, upgrade, inspect and remove schema fence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from pyfence._connect import Connection
from pyfence.cli._database import DEFAULT_TIMEOUT, connection, watched
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._output import Output, say, write
from pyfence.cli._settings import Settings, shared_options


@click.group()
@shared_options
def migrate() -> None:
    """Install, upgrade, inspect and remove schema fence."""


@migrate.command()
@click.argument("revision", default="head")
@click.option(
    "--with-roles",
    is_flag=True,
    help="Also make the cluster's roles fence_client, fence_admin and fence_monitor. Needs CREATEROLE.",
)
@shared_options
@click.pass_obj
def up(settings: Settings, revision: str, with_roles: bool) -> None:
    """Upgrade to REVISION (default: the newest), from whatever is there.

    Needs CREATE on the database the first time, afterwards to be the owner of schema fence. Safe to run at every
    start and from any number of processes: they queue, and all succeed. Prints the revision.
    """
    _move(settings, lambda migrations, conn: migrations.up(conn, revision, with_roles=with_roles))


@migrate.command()
@click.argument("revision", default="base")
@shared_options
@click.pass_obj
def down(settings: Settings, revision: str) -> None:
    """Go back to REVISION (default: base, which removes every object and forgets all leases).

    Refused, and nothing is changed, while a table is protected. Prints the revision.
    """
    _move(settings, lambda migrations, conn: migrations.down(conn, revision))


def _move(settings: Settings, move: Callable[[Any, Connection], None]) -> None:
    from pyfence import migrate as migrations

    with connection(settings) as conn, watched(conn, settings.timeout):
        before = migrations.current(conn)
        move(migrations, conn)
        after = migrations.current(conn)
    if before == after:
        say(f"schema fence: already at {after or 'base'}")
    else:
        say(f"schema fence: {before or 'base'} -> {after or 'base'}")
    output = Output(settings)
    output.document({"revision": after, "previous": before}, lambda: output.line(after or "base"))


@migrate.command()
@shared_options
@click.pass_obj
def current(settings: Settings) -> None:
    """Print the database's revision; base where nothing is installed."""
    from pyfence import migrate as migrations

    with connection(settings) as conn, watched(conn, settings.timeout or DEFAULT_TIMEOUT):
        found = migrations.current(conn)
    if found is None:
        say("schema fence is not installed; run: pyfence migrate up")
    output = Output(settings)
    output.document({"revision": found, "head": migrations.head()}, lambda: output.line(found or "base"))


@migrate.command()
@shared_options
@click.pass_obj
def check(settings: Settings) -> None:
    """Exit with 0 if the database is at the revision that this version needs and its objects are there, else with 1."""
    from pyfence import migrate as migrations

    with connection(settings) as conn, watched(conn, settings.timeout or DEFAULT_TIMEOUT):
        found = migrations.check(conn)
    output = Output(settings)
    output.document({"revision": found, "head": migrations.head()}, lambda: output.line(found))


@migrate.command()
@click.argument("revisions", default="head", metavar="[[FROM:]TO]")
@shared_options
@click.pass_obj
def sql(settings: Settings, revisions: str) -> None:
    """Print a migration as plain SQL for a DBA, without a connection.

    FROM:TO such as base:head, 0001:0002 or (down) 0001:base; default: base:head. Apply it with
    psql -v ON_ERROR_STOP=1 -f FILE.
    """
    from pyfence import migrate as migrations

    script = migrations.sql(revisions)
    Output(settings).document({"revisions": revisions, "sql": script}, lambda: write(script))


@migrate.command()
@click.argument("revision", default="head")
@shared_options
@click.pass_obj
def stamp(settings: Settings, revision: str) -> None:
    """Record REVISION (default: the newest) without running anything, after a script was applied by hand.

    Refused unless that revision's objects are there.
    """
    from pyfence import migrate as migrations

    with connection(settings) as conn, watched(conn, settings.timeout or DEFAULT_TIMEOUT):
        before = migrations.current(conn)
        migrations.stamp(conn, revision)
        after = migrations.current(conn)
    say(f"schema fence: stamped {after or 'base'}, was {before or 'base'}")
    output = Output(settings)
    output.document({"revision": after, "previous": before}, lambda: output.line(after or "base"))


@click.command()
@click.option("--unprotect", is_flag=True, help="First take the guards off all protected tables.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
@click.pass_obj
def uninstall(settings: Settings, unprotect: bool, yes: bool) -> int:
    """Remove everything of pyfence: its objects, every lease and the history, and schema fence itself.

    A dump of the database's schema is then what it was before. All or nothing, and refused while a table is
    protected, unless with --unprotect. Run it as the schema's owner; with --unprotect as a role that can act as the
    owner of every protected table too. Group roles made by `migrate up --with-roles` stay: other databases use them.
    """
    from pyfence import migrate as migrations

    if not yes:
        if settings.json or not (sys.stdin and sys.stdin.isatty()):
            raise click.UsageError("this forgets every lease and the history: say --yes")
        if not click.confirm("Remove pyfence, every lease and the history from this database?", err=True):
            say("nothing was changed")
            return ExitCode.NO
    with connection(settings) as conn, watched(conn, settings.timeout):
        done = migrations.uninstall(conn, unprotect=unprotect)
    for table in done.unprotected[:20]:
        say(f"{table} is no longer protected")
    if len(done.unprotected) > 20:
        say(f"and {len(done.unprotected) - 20} more")
    say("pyfence is removed" if done.schema_dropped else "pyfence is removed; its empty schema is another role's")
    output = Output(settings)
    output.document(
        {"unprotected": done.unprotected, "schema_dropped": done.schema_dropped}, lambda: output.line("removed")
    )
    return ExitCode.OK
