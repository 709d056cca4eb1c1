"""`pyfence authority` and `confirm-lineage`: who issues tokens here, and whether somebody has to look first."""

from __future__ import annotations

from datetime import datetime

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._leases import ADMIN_HINTS, MONITOR_HINTS
from pyfence.cli._output import Column, Output, local_time, say
from pyfence.cli._settings import Settings, shared_options

_BIGGEST = 2**63 - 1
_STATE_STYLES = {"issuing": "green", "standby": "dim", "pending": "yellow", "quarantined": "red"}
_STATE_COLUMNS = (
    Column("state", "state", style=_STATE_STYLES.get),
    Column("lineage", "lineage", right=True),
    Column("floor", "floor", right=True),
    Column("since", "floor_at", local_time),
    Column("clock's next token", "next_token", right=True),
    Column("highest known", "highest_known", right=True),
)
_IDENTITY_COLUMNS = (
    Column("identity", "part"),
    Column("remembered", "remembered"),
    Column("now", "now"),
    Column("same", "same", lambda same: "yes" if same else "no", style={"no": "yellow"}.get),
)
_OPTION_COLUMNS = (
    Column("option", "name"),
    Column("value", "value"),
    Column("changed at", "changed_at", local_time),
    Column("by", "changed_by"),
    Column("because", "reason", folds=True),
)
_PARTS = ("system_identifier", "timeline", "database_oid", "started_at")


@click.command()
@shared_options
@click.pass_obj
def authority(settings: Settings) -> int:
    """Show who issues tokens here: lineage, floor, identity, options, and what to do after a failover or a restore.

    Needs the rights of: pyfence role add ROLE --as monitor. Exits with 1 while the authority is quarantined: no
    lease is granted before an administrator acts.
    """
    with session(settings, hints=MONITOR_HINTS) as database:
        (state,) = database.rows(_queries.AUTHORITY)
        options = database.rows(_queries.OPTIONS)
    output = Output(settings)

    def print_text() -> None:
        output.table(_STATE_COLUMNS, [state])
        output.line("")
        output.table(_IDENTITY_COLUMNS, _identity(state))
        output.line("")
        output.table(_OPTION_COLUMNS, options)
        if state["why"]:
            output.line("")
            output.line(f"{state['state']}: {state['why']}")
        if state["remedy"]:
            output.line(f"  to do: {state['remedy']}")

    output.document({"authority": state, "options": options}, print_text)
    return ExitCode.NO if state["state"] == "quarantined" else ExitCode.OK


@click.command(name="confirm-lineage")
@click.option(
    "--floor",
    type=click.IntRange(1, _BIGGEST),
    metavar="TOKEN",
    help="A number above every token that anything remembers, where the server's clock cannot give one.",
)
@shared_options
@click.pass_obj
def confirm_lineage(settings: Settings, floor: int | None) -> None:
    """Accept what the database is now, and begin a new lineage of tokens: every lease granted before is dead.

    Ends a quarantine. First make sure that no other copy of this database is in use. Prints the new floor.
    """
    with session(settings, hints=ADMIN_HINTS) as database:
        begun = int(database.value(_queries.confirm_lineage(floor)))
    say("a new lineage has begun; whoever held a lease has to acquire again")
    output = Output(settings)
    output.document({"floor": begun}, lambda: output.line(str(begun)))


def _identity(state: DictRow) -> list[dict[str, object]]:
    """What the authority remembers of its server and database, beside what they are."""
    rows: list[dict[str, object]] = []
    for part in _PARTS:
        remembered, now = (_shown(state[name]) for name in (part, f"present_{part}"))
        rows.append({"part": part.replace("_", " "), "remembered": remembered, "now": now, "same": remembered == now})
    return rows


def _shown(value: object) -> str | None:
    if value is None:
        return None
    return local_time(value) if isinstance(value, datetime) else str(value)
