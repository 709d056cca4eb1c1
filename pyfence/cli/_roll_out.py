"""`pyfence violations`, `exempt` and `prune`: who would break, whom to let pass meanwhile, and forgetting it all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._leases import ADMIN_HINTS, MONITOR_HINTS, limited
from pyfence.cli._output import Column, Output, Row, local_time, say
from pyfence.cli._settings import Settings, name, shared_options, text

_OWNER_HINTS = {
    "42501": "Connect as the table's owner, who also needs: pyfence role add ROLE --as admin",
    "42704": "Name the role as SQL does, in double quotes where it is not in lower case.",
}
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

_WHO_COLUMNS = (
    Column("role", "role"),
    Column("application", "application", folds=True),
    Column("client", "client"),
    Column("table", "protected_table", folds=True),
    Column("code", "code"),
    Column("times", "count", right=True),
    Column("last", "last_at", local_time),
    Column("resource", "resource", folds=True),
    Column("exempt", "exempt", lambda exempt: "yes" if exempt else ""),
)


def length(value: str) -> timedelta:
    """A length of time with its unit: 90m, 8h, 30d."""
    number, unit = value[:-1], value[-1:]
    if not number.isascii() or not number.isdecimal() or len(number) > 6 or unit not in _UNITS:
        raise click.BadParameter(f"{value!r} is no length such as 90m, 8h or 30d")
    return timedelta(**{_UNITS[unit]: int(number)})


@click.command()
@click.option("--table", type=name, help="Only of this table.")
@click.option("--since", type=length, metavar="LENGTH", help="Only those seen in the last 90m, 8h, 30d ...")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="At most so many.")
@shared_options
@click.pass_obj
def violations(settings: Settings, table: str | None, since: timedelta | None, limit: int) -> int:
    """Show who would break: writes that were let pass and would have been refused, by role, application and table.

    Tables in mode observe and exempt roles leave them. Exits with 1 where there are any, with 0 where there are none.
    """
    with session(settings, hints=MONITOR_HINTS) as database:
        found = database.rows(_queries.violations(table=table, since=since, limit=limit + 1))
    rows, truncated = limited(found, limit)
    output = Output(settings)

    def show() -> None:
        if rows:
            output.table(_WHO_COLUMNS, _without_repetitions(rows))
        else:
            output.line("nobody")

    output.document({"violations": rows, "truncated": truncated}, show)
    return ExitCode.NO if rows else ExitCode.OK


@click.command()
@click.argument("table", type=name)
@click.argument("role", type=name)
@click.option("--for", "time", type=length, metavar="LENGTH", help="For 90m, 8h, 30d ... from now on.")
@click.option("--until", type=click.DateTime(), metavar="TIME", help="Until then, in UTC: 2026-12-01T06:00:00")
@click.option("--reason", type=text, help="Why; it goes into the history and the doctor's list.")
@click.option("--end", is_flag=True, help="End the exemption now.")
@shared_options
@click.pass_obj
def exempt(
    settings: Settings,
    table: str,
    role: str,
    time: timedelta | None,
    until: datetime | None,
    reason: str | None,
    end: bool,
) -> None:
    """Let the sessions of ROLE write TABLE without a claim for a while: they are noted, not refused.

    For a job that is still being changed, and for the night when something must run. It ends by itself. Run it as the
    table's owner.
    """
    if end != (time is None and until is None) or end == (reason is not None) or None not in (time, until):
        raise click.UsageError("give --reason and one of --for and --until; or --end alone")
    with session(settings, hints=_OWNER_HINTS) as database:
        if end:
            database.rows(_queries.unexempt(table, role))
            moment = None
        elif time is not None:
            moment = database.value(_queries.exempt_for(table, role, time, reason or ""))
        else:
            assert until is not None
            moment = database.value(_queries.exempt_until(table, role, until.replace(tzinfo=UTC), reason or ""))
        full_name = database.value(_queries.full_name(table))
    say(f"{role} is refused on {full_name} again" if end else f"{role} may write {full_name} until {moment}")
    output = Output(settings)
    output.document({"table": full_name, "role": role, "until": moment}, lambda: output.line(str(moment or "ended")))


@click.command()
@click.option("--older-than", "age", type=length, required=True, metavar="LENGTH", help="90d, for example.")
@shared_options
@click.pass_obj
def prune(settings: Settings, age: timedelta) -> None:
    """Forget history, violations and ended exemptions that are older than a length of time. Never tokens or leases."""
    with session(settings, hints=ADMIN_HINTS) as database:
        gone = database.value(_queries.prune(age))
    say(f"{gone} rows are forgotten")
    output = Output(settings)
    output.document({"pruned": gone}, lambda: output.line(str(gone)))


def _without_repetitions(rows: list[DictRow]) -> list[Row]:
    """For people: a role, application and client is named once, before all of its lines."""
    shown: list[Row] = []
    before = None
    for row in rows:
        who = (row["role"], row["application"], row["client"])
        shown.append({**row, "role": "", "application": "", "client": ""} if who == before else dict(row))
        before = who
    return shown
