"""`pyfence role add`: what a role needs in schema fence, and nothing else."""

from __future__ import annotations

import click

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._output import Output, say
from pyfence.cli._settings import Settings, name, shared_options

_HINTS = {
    "42704": """Create it first (create role NAME login), and name it as SQL does: name, or '"Mixed Case"'.""",
    "42501": "Connect as the owner of schema fence.",
}


@click.group()
@shared_options
def role() -> None:
    """Give roles their rights in schema fence."""


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
