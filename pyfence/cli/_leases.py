"""`pyfence leases`, `history` and `revoke`."""

from __future__ import annotations

from typing import Any

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._failures import Failed, Failure
from pyfence.cli._output import Column, Output, Row, duration, local_time, say
from pyfence.cli._settings import Settings, shared_options, text
from pyfence.cli._story import brief

MONITOR_HINTS = {"42501": "The views are for roles with: pyfence role add ROLE --as monitor"}
ADMIN_HINTS = {"42501": "That is for roles with: pyfence role add ROLE --as admin"}
_STYLES = {"held": "green", "expired": "yellow", "closed": "dim", "superseded lineage": "yellow"}


LEASE_COLUMNS = (
    Column("resource", "resource", folds=True),
    Column("state", "state", style=_STYLES.get),
    Column("holder", "owner", folds=True),
    Column("token", "token", right=True),
    Column("left", "seconds_left", duration, right=True),
    Column("waiting", "waiting", right=True, style=lambda count: "yellow" if count not in ("0", "-") else "dim"),
    Column("expires at", "expires_at", local_time),
)
IN_FLIGHT_COLUMNS = (
    Column("resource", "resource", folds=True),
    Column("token", "token", right=True),
    Column("pid", "pid", right=True),
    Column("role", "role"),
    Column("application", "application", folds=True),
    Column("client", "client"),
    Column("state", "state"),
    Column("since", "since", local_time),
    Column("query start", "query_start", local_time),
)
_CLOSED_REASON = Column("closed because", "closed_reason", folds=True)
_EVENT_COLUMNS = (
    Column("at", "at", local_time),
    Column("event", "event"),
    Column("resource", "resource", folds=True),
    Column("token", "token", right=True),
    Column("owner", "owner", folds=True),
    Column("role", "role"),
    Column("application", "application", folds=True),
    Column("client", "client"),
    Column("detail", "words", folds=True),
)


def _in_words(events: list[DictRow]) -> list[Row]:
    return [{**row, "words": None if row["detail"] is None else brief(row["detail"])} for row in events]


def limited(rows: list[DictRow], limit: int) -> tuple[list[DictRow], bool]:
    """The first `limit` of rows that were read with one to spare, and whether there were more. Says so, too."""
    truncated = len(rows) > limit
    if truncated:
        say(f"only the first {limit} are shown; more with --limit")
    return rows[:limit], truncated


def unknown_resource(resource: str) -> Failed:
    """The failure for a resource that nobody has ever asked for."""
    return Failed(
        Failure(
            "not_found",
            f"no lease was ever granted for {resource!r}",
            "Names are compared letter by letter.",
            "To see what there is: pyfence leases --all",
        )
    )


@click.command()
@click.option("--all", "with_closed", is_flag=True, help="Also those that are closed: released, revoked, taken over.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="At most so many.")
@shared_options
@click.pass_obj
def leases(settings: Settings, with_closed: bool, limit: int) -> None:
    """List the leases that are held or have expired unclaimed, by resource."""
    states = None if with_closed else ("held", "expired", "superseded lineage")
    with session(settings, hints=MONITOR_HINTS) as database:
        found, truncated = limited(database.rows(_queries.leases(states=states, limit=limit + 1)), limit)
    output = Output(settings)
    columns = (*LEASE_COLUMNS, _CLOSED_REASON) if with_closed else LEASE_COLUMNS
    output.document({"leases": found, "truncated": truncated}, lambda: output.table(columns, found))


@click.command()
@click.argument("resource", type=text, required=False)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="At most so many.")
@shared_options
@click.pass_obj
def history(settings: Settings, resource: str | None, limit: int) -> None:
    """List the newest events of RESOURCE, or of all resources and tables: what, when, who. The newest comes last."""
    with session(settings, hints=MONITOR_HINTS) as database:
        rows = database.rows(_queries.history(resource=resource, limit=limit + 1))
    truncated = len(rows) > limit
    if truncated:
        say(f"only the newest {limit} are shown; more with --limit")
    events = rows[-limit:]
    output = Output(settings)
    output.document(
        {"history": events, "truncated": truncated}, lambda: output.table(_EVENT_COLUMNS, _in_words(events))
    )


@click.command()
@click.argument("resource", type=text)
@click.option("--reason", type=text, required=True, help="Why; it goes into the history.")
@click.option("--evict", is_flag=True, help="Then end the sessions that still hold it up. See status RESOURCE.")
@shared_options
@click.pass_obj
def revoke(settings: Settings, resource: str, reason: str, evict: bool) -> int:
    """End the lease of RESOURCE, expired or not, without its holder. Exits with 1 where there is nothing to end."""
    with session(settings, hints=ADMIN_HINTS) as database:
        revoked = bool(database.value(_queries.revoke(resource, reason)))
    say(f"the lease of {resource!r} is revoked" if revoked else f"there is no open lease of {resource!r}")
    document: dict[str, Any] = {"resource": resource, "revoked": revoked}
    if evict:  # once the revocation is committed: from then on nobody else gets in the way
        with session(settings, hints=ADMIN_HINTS) as database:
            document["evicted"] = database.value(_queries.evict(resource))
        say(f"sessions ended: {document['evicted']}")
    output = Output(settings)
    output.document(document, lambda: output.line("revoked" if revoked else "none"))
    return ExitCode.OK if revoked or document.get("evicted") else ExitCode.NO
