"""`pyfence doctor` and `repair`: holes in the fence, and arming guards again."""

from __future__ import annotations

from importlib.resources import files

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import LONG_TIMEOUT, session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._leases import MONITOR_HINTS
from pyfence.cli._output import Output, say, write
from pyfence.cli._settings import Settings, name, shared_options

_REPAIR_HINTS = {
    "42P01": """Name the table as SQL does: schema.table, or '"Mixed Case"' where it needs quotes.""",
    "42501": "Connect as the table's owner, who also needs: pyfence role add ROLE --as admin",
}
_SEVERITIES = ("error", "warning", "info")


@click.command()
@click.option(
    "--event-triggers", is_flag=True, help="Instead print the SQL of the optional event triggers, for a superuser."
)
@shared_options
@click.pass_obj
def doctor(settings: Settings, event_triggers: bool) -> int:
    """Look for holes in the fence, and name the remedy of each.

    Needs the rights of: pyfence role add ROLE --as monitor. Exits with 1 where there is an error; warnings and
    information leave it at 0. A remedy that ends with a semicolon is SQL.
    """
    if event_triggers:
        script = (files("pyfence") / "_optional_sql" / "event_triggers.sql").read_text("utf-8")
        Output(settings).document({"sql": script}, lambda: write(script))
        return ExitCode.OK
    with session(settings, hints=MONITOR_HINTS, timeout=LONG_TIMEOUT) as database:
        findings = database.rows(_queries.AUDIT)
    _print_findings(Output(settings), {}, findings)
    counts = _counts(findings)
    say(", ".join(f"{severity}: {count}" for severity, count in counts.items()) if findings else "no findings")
    return ExitCode.NO if counts["error"] else ExitCode.OK


@click.command()
@click.argument("table", type=name, required=False)
@shared_options
@click.pass_obj
def repair(settings: Settings, table: str | None) -> int:
    """Arm again what the doctor reports as fixable: the guard of TABLE, or of every table that is yours.

    Policies are never changed. Run it as the tables' owner. Prints what is left to do; exits with 1 where an error
    is among it.
    """
    with session(settings, hints=_REPAIR_HINTS, timeout=LONG_TIMEOUT) as database:
        count = int(database.value(_queries.repair(table)))
        full_name = None if table is None else str(database.value(_queries.full_name(table)))
        findings = [row for row in database.rows(_queries.AUDIT) if table is None or row["object"] == full_name]
    say("nothing to repair" if count == 0 else f"guards armed again: {count}")
    left = [row for row in findings if row["severity"] == "error"]
    _print_findings(Output(settings), {"repaired": count}, left)
    return ExitCode.NO if left else ExitCode.OK


def _counts(findings: list[DictRow]) -> dict[str, int]:
    """How many findings of each severity."""
    return {severity: sum(row["severity"] == severity for row in findings) for severity in _SEVERITIES}


def _print_findings(output: Output, more: dict[str, int], findings: list[DictRow]) -> None:
    """Three lines a finding, or with --json the findings, their number by severity, and `more`."""

    def print_text() -> None:
        for row in findings:
            output.line(f"{row['severity']}: {row['object']} [{row['code']}]")
            output.line(f"  {row['detail']}")
            output.line(f"  remedy: {row['remedy']}")

    output.document({**more, "findings": findings, "counts": _counts(findings)}, print_text)
