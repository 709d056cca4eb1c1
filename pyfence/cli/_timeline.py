"""`pyfence timeline`: who held a resource when, and what happened meanwhile, as a page, a table or JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from psycopg.rows import DictRow

from pyfence.cli import _queries
from pyfence.cli._database import session
from pyfence.cli._leases import MONITOR_HINTS, unknown_resource
from pyfence.cli._output import Column, Output, duration, local_time, say, write
from pyfence.cli._page import page
from pyfence.cli._roll_out import length
from pyfence.cli._settings import Settings, shared_options, text
from pyfence.cli._story import Story, tell

_COLUMNS = (
    Column("from", "start", local_time),
    Column("to", "end", local_time),
    Column("held for", "seconds", duration, right=True),
    Column("token", "token", right=True),
    Column("holder", "owner", folds=True),
    Column("ended", "ending", folds=True),
)


def moment(value: str) -> datetime:
    """A moment: so long ago (90m, 8h, 30d), or a time as ISO 8601 writes it, in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return datetime.now(UTC) - length(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


@click.command()
@click.argument("resource", type=text)
@click.option(
    "--html", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE", help="Write a page; - for stdout."
)
@click.option("--since", type=moment, metavar="TIME", help="Only from then on: 90m, 8h, 30d, or 2026-12-01T06:00.")
@click.option("--until", type=moment, metavar="TIME", help="Only until then.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=100_000, show_default=True, help="The newest so many events."
)
@shared_options
@click.pass_obj
def timeline(
    settings: Settings, resource: str, html: str | None, since: datetime | None, until: datetime | None, limit: int
) -> None:
    """Tell the story of RESOURCE: who held it when, takeovers, revocations, what was let pass, changes of lineage.

    With --html as one page that needs no network, for a review after an incident. Needs the rights of: pyfence role
    add ROLE --as monitor.
    """
    story, state, truncated, now = _read(settings, resource, since, until, limit)
    if truncated:
        say(f"only the newest {limit} events are shown; more with --limit")
    output = Output(settings)
    if html is not None:
        document = page(story, state=state, now=now, truncated=truncated)
        if html == "-":
            write(document)
            return
        Path(html).write_text(document, encoding="utf-8", errors="backslashreplace")
        say(f"written: {html}")
        output.document({"resource": resource, "file": html, "events": len(story.moments)}, lambda: None)
        return
    spans = [
        {**span, "seconds": max(timedelta(), (span["end"] or now) - span["start"]).total_seconds()}
        for span in story.document()["spans"]
    ]
    output.document({**story.document(), "truncated": truncated}, lambda: output.table(_COLUMNS, spans))


def _read(
    settings: Settings, resource: str, since: datetime | None, until: datetime | None, limit: int
) -> tuple[Story, str, bool, datetime]:
    """The story, the lease's state, whether there was more, and up to when. Raises `Failed` for an unknown resource."""
    with session(settings, hints=MONITOR_HINTS) as database:
        now: datetime = database.value(_queries.CLOCK)
        leases = database.rows(_queries.leases(resource=resource, limit=1))
        if not leases:
            raise unknown_resource(resource)
        statements = _queries.timeline(resource, since, until, limit + 1)
        history, violations, accepted = (database.rows(statement) for statement in statements)
    truncated = len(history) > limit or len(violations) > limit
    story = tell(resource, history[-limit:], violations[-limit:], accepted)
    return story, _state(leases[0]), truncated, until or now


def _state(lease: DictRow) -> str:
    """How a lease is at this moment."""
    if lease["state"] == "closed":
        return f"free: {lease['closed_reason']}"
    until = f", token {lease['token']}, until {lease['expires_at']:%Y-%m-%d %H:%M:%S} UTC"
    return f"{lease['state']}: {lease['owner']}{until}"
