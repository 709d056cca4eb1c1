"""`pyfence role`: what a role needs in schema fence, and nothing else; and which names it may acquire."""

from __future__ import annotations

import click

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._leases import ADMIN_HINTS
from pyfence.cli._output import Output, say
from pyfence.cli._settings import Settings, name, shared_options, text

_HINTS = {
    "42704": """Create it first (create role NAME login), and name it as SQL does: name, or '"Mixed Case"'.""",
    "42501": "Connect as the owner of schema fence.",
}


@click.group()
@shared_options
def role() -> None:
    """Give roles their rights in schema fence, and say which names they may acquire."""


@role.command()
@click.argument("role", type=name)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["client", "admin", "monitor"]),
    required=True,
    help="client: hold leases and write under them. admin: protect tables, end leases, see everything. monitor: see.",
)
@click.option("--sql", "only_sql", is_flag=True, help="Print the statements for a DBA and change nothing.")
@shared_options
@click.pass_obj
def add(settings: Settings, role: str, kind: str, only_sql: bool) -> None:
    """Grant ROLE exactly what its kind of use needs. ROLE must exist; run it as the owner of schema fence.

    A job that only writes to protected tables, and is to be refused properly, needs no right at all here.
    """
    with session(settings, hints=_HINTS) as database:
        full_name = str(database.value(_queries.role_name(role)))
        statements = [str(row["statement"]) for row in database.rows(_queries.role_grants(role, kind))]
        if not only_sql:
            database.grant(statements)
    output = Output(settings)

    def print_text() -> None:
        for statement in statements if only_sql else ():
            output.line(f"{statement};")

    if not only_sql:
        say(f"{full_name} is a {kind} of pyfence: {len(statements)} rights granted")
    output.document({"role": full_name, "kind": kind, "executed": not only_sql, "statements": statements}, print_text)


@role.command()
@click.argument("role", type=name)
@click.argument("pattern", type=text)
@click.option(
    "--max", "most", type=click.IntRange(0, 2**31 - 1), metavar="N", help="So many at a time; 0 takes the rule away."
)
@shared_options
@click.pass_obj
def allow(settings: Settings, role: str, pattern: str, most: int | None) -> None:
    """Let ROLE acquire the names of PATTERN (* is any run of characters) and, from its first rule on, no others.

    Without --max: any number of them at a time. Said again for the same pattern it replaces the number. A role
    without rules may acquire every name. The rules are in the view fence.allowances.
    """
    with session(settings, hints={**ADMIN_HINTS, "42704": _HINTS["42704"]}) as database:
        full_name = str(database.value(_queries.role_name(role)))
        database.rows(_queries.allow(role, pattern, most))
    output = Output(settings)
    number = "any number at a time" if most is None else f"{most} at a time"
    say(f"{full_name}: the rule for {pattern} is gone" if most == 0 else f"{full_name} may acquire {pattern}: {number}")
    output.document({"role": full_name, "pattern": pattern, "max_leases": most}, lambda: None)
