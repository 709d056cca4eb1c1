"""`pyfence protect`, `set-mode` and `unprotect`: guards of tables."""

from __future__ import annotations

from typing import Any

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import Session, session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._output import Column, Output, Row, say
from pyfence.cli._protect_all import Scope, protect_all
from pyfence.cli._settings import Settings, name, shared_options, text

MODES = ("enforce", "observe")
_HINTS = {
    "42P01": """Name the table as SQL does: schema.table, or '"Mixed Case"' where it needs quotes.""",
    "3F000": """Name the table as SQL does: schema.table, or '"Mixed Case"' where it needs quotes.""",
    "42501": "Connect as the table's owner, who also needs: pyfence role add ROLE --as admin",
}

GUARD_COLUMNS = (
    Column("table", "table", folds=True),
    Column("resource", "resource", folds=True),
    Column("mode", "mode"),
    Column(
        "armed",
        "armed",
        lambda armed: "?" if armed is None else "yes" if armed else "NO",  # null: the table is locked
        style=lambda t: "green" if t == "yes" else "bold red",
    ),
    Column("expiry", "expiry"),
    Column("writes", "writes"),
    Column("inserts", "inserts"),
)


def guard_rows(rows: list[DictRow]) -> list[Row]:
    """Guards for a text table: one that has lost its table is shown with the name it had."""
    return [{**row, "table": row["table"] or f"{row['schema_name']}.{row['table_name']} (gone)"} for row in rows]


def column(value: str) -> str:
    """A column's name as it is, without quotes, or '' for none."""
    return text(value) if value else value


@click.command()
@click.argument("table", type=name, required=False)
@click.argument("resource", type=text, required=False)
@click.option("--mode", type=click.Choice(MODES), help="enforce (new tables) refuses; observe only reports.")
@click.option(
    "--expiry",
    type=click.Choice(["reject", "until_superseded"]),
    help="An expired lease is refused (new tables), or passes until somebody else asks for it.",
)
@click.option(
    "--writes",
    type=click.Choice(["many", "once", "sequenced"]),
    help="How often one token may write: many (new tables), once, or with a growing sequence.",
)
@click.option(
    "--inserts", type=click.Choice(["check", "allow"]), help="Whether INSERT needs a claim: check (new tables), allow."
)
@click.option("--covering", type=text, metavar="RESOURCE", help="Its holder may write every row, and TRUNCATE.")
@click.option(
    "--token-column",
    type=column,
    metavar="COLUMN",
    help="A bigint column that the guard stamps with the token; '' for none.",
)
@click.option(
    "--uncatchable/--catchable",
    default=None,
    help="Whether an EXCEPTION block in the database is kept from swallowing a refusal.",
)
@click.option("--all", "everything", is_flag=True, help="Instead of TABLE and RESOURCE: every table of --schema.")
@click.option("--schema", type=name, help="With --all: the schema.")
@click.option(
    "--resource-template", type=text, help="With --all: '{@schema}.{@table}', '{@table}:{@key}' (primary key) ..."
)
@click.option("--for", "own", type=(name, text), multiple=True, help="With --all: a TEMPLATE of its own for a TABLE.")
@click.option("--except", "without", type=name, multiple=True, metavar="TABLE", help="With --all: leave TABLE out.")
@click.option("--yes", is_flag=True, help="With --all: carry the plan out without asking.")
@shared_options
@click.pass_obj
def protect(
    settings: Settings,
    /,
    table: str | None,
    resource: str | None,
    everything: bool,
    schema: str | None,
    resource_template: str | None,
    own: tuple[tuple[str, str], ...],
    without: tuple[str, ...],
    yes: bool,
    **parameters: Any,
) -> int:
    """Guard TABLE: every write must present the current token of the RESOURCE it touches.

    RESOURCE is a name ('nightly-billing') or a template over the table's columns ('report:{id}'). TABLE is a name as
    SQL writes it. What is not given keeps its present value. Run it as the table's owner.

    With --all the plan is shown first, and carried out as a whole or not at all: after a yes on a terminal, or with
    --yes. Exits with 1, and changes nothing, while a table of the plan cannot be protected.
    """
    if everything:
        if None in (schema, resource_template) or table is not None:
            raise click.UsageError("--all takes --schema and --resource-template, and neither TABLE nor RESOURCE")
        scope = Scope(str(schema), str(resource_template), own, without)
        return protect_all(settings, scope, _queries.Guard(**parameters), yes=yes, hints=_HINTS)
    if table is None or resource is None or schema or resource_template or own or without or yes:
        raise click.UsageError("give TABLE and RESOURCE; or --all with --schema and --resource-template")
    with session(settings, hints=_HINTS) as database:
        database.rows(_queries.protect(table, resource, _queries.Guard(**parameters)))
        guard = _guard(database, table)
    say(f"{guard['table']} is protected")
    _print_guard(settings, guard)
    return ExitCode.OK


@click.command(name="set-mode")
@click.argument("table", type=name)
@click.argument("mode", type=click.Choice(MODES))
@shared_options
@click.pass_obj
def set_mode(settings: Settings, table: str, mode: str) -> None:
    """Change the MODE of TABLE's guard, waiting out open writers. Run it as the table's owner."""
    with session(settings, hints=_HINTS) as database:
        database.rows(_queries.set_mode(table, mode))
        guard = _guard(database, table)
    say(f"{guard['table']} is in mode {guard['mode']}")
    _print_guard(settings, guard)


@click.command()
@click.argument("table", type=name)
@shared_options
@click.pass_obj
def unprotect(settings: Settings, table: str) -> None:
    """Take the guard off TABLE: from then on anybody with the right to may write it. Run it as the table's owner."""
    with session(settings, hints=_HINTS) as database:
        full_name = database.value(_queries.full_name(table))
        database.rows(_queries.unprotect(table))
    say(f"{full_name} is no longer protected")
    output = Output(settings)
    output.document({"table": full_name, "protected": False}, lambda: output.line(full_name))


def _guard(database: Session, table: str) -> DictRow:
    """The guard as it now is, read in the transaction that made it."""
    return database.rows(_queries.guard_of(table))[0]


def _print_guard(settings: Settings, guard: DictRow) -> None:
    output = Output(settings)
    output.document({"protected_table": guard}, lambda: output.table(GUARD_COLUMNS, guard_rows([guard])))
