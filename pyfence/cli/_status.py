"""`pyfence status`: leases, protected tables and schema version in one look."""

from __future__ import annotations

import click

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._leases import LEASE_COLUMNS, MONITOR_HINTS, limited, unknown_resource
from pyfence.cli._output import Output
from pyfence.cli._settings import Settings, shared_options, text
from pyfence.cli._tables import GUARD_COLUMNS, guard_rows

_MOST = 100  # leases shown; `leases` lists them all


@click.command()
@click.argument("resource", type=text, required=False)
@shared_options
@click.pass_obj
def status(settings: Settings, resource: str | None) -> None:
    """Show open leases, protected tables and the schema's version; with RESOURCE that lease, open or closed.

    Needs the rights of: pyfence role add ROLE --as monitor. Exits with 1 for a RESOURCE that never had a lease.
    """
    states = None if resource is not None else ("held", "expired", "superseded lineage")
    with session(settings, hints=MONITOR_HINTS) as database:
        version = str(database.value(_queries.SCHEMA_VERSION))
        counts = {row["state"]: row["leases"] for row in database.rows(_queries.LEASE_COUNTS)}
        found = database.rows(_queries.leases(resource=resource, states=states, limit=_MOST + 1))
        guards = database.rows(_queries.GUARDS)
    if resource is not None and not found:
        raise unknown_resource(resource)
    leases, truncated = limited(found, _MOST)
    output = Output(settings)

    def print_text() -> None:
        output.line(f"schema version: {version}")
        output.line("")
        if leases:
            output.table(LEASE_COLUMNS, leases, title=f"leases: {_summary(counts)}")
        else:
            output.line(f"leases: {_summary(counts)}")
        output.line("")
        if guards:
            output.table(GUARD_COLUMNS, guard_rows(guards), title=f"protected tables: {len(guards)}")
        else:
            output.line("protected tables: none")

    output.document(
        {
            "schema_version": version,
            "lease_counts": counts,
            "leases": leases,
            "truncated": truncated,
            "protected_tables": guards,
        },
        print_text,
    )


def _summary(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
