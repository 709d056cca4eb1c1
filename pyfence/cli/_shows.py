"""`pyfence demo` and `pyfence bench`: both start a PostgreSQL of their own unless they are given one."""

from __future__ import annotations

import click

from pyfence.cli._settings import Settings, shared_options


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server running and print its URL.")
@shared_options
@click.pass_obj
def demo(settings: Settings, keep: bool) -> int:
    """Play the story of the stale writer on a PostgreSQL of its own, about 10 seconds.

    With --database-url it plays in a scratch schema of that server; PYFENCE_DATABASE_URL is not looked at. Exits with
    1 if an outcome differs from what pyfence promises.
    """
    from pyfence.demo import run

    return run(keep=keep, database_url=_given_url(settings), json=settings.json)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rows and rounds: a look, not a measurement.")
@click.option(
    "--rows", type=click.IntRange(10, 100_000_000), default=300_000, show_default=True, help="Rows of the bulk updates."
)
@shared_options
@click.pass_obj
def bench(settings: Settings, quick: bool, rows: int) -> int:
    """Measure guarded against unguarded writes, side by side, on a PostgreSQL of its own.

    With --database-url it measures in a scratch schema of that database, which has pyfence; PYFENCE_DATABASE_URL is
    not looked at.
    """
    from pyfence.bench import run

    return run(database_url=_given_url(settings), quick=quick, rows=rows, json=settings.json)


def _given_url(settings: Settings) -> str | None:
    """The URL of the command line alone: a variable set for production is no place to play in."""
    if settings.database_url is not None:
        settings.connect_arguments()  # refuses one that cannot be read, without showing it
    return settings.database_url
