"""`pyfence status`: authority, leases, refusals and protected tables in one look, or again and again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from pyfence.cli._database import LONG_TIMEOUT, session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._failures import Failure, failure_of
from pyfence.cli._leases import MONITOR_HINTS
from pyfence.cli._look import Audits, Look, look
from pyfence.cli._output import Output, is_terminal, json_value, local_time, say, write
from pyfence.cli._settings import Settings, seconds, shared_options, text

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # a screen of its own, no cursor, no line that goes on in the next
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


@click.command()
@click.argument("resource", type=text, required=False)
@click.option("--watch", is_flag=True, help="Look again and again, until interrupted.")
@click.option("--every", type=seconds, default="2", metavar="SECONDS", show_default=True, help="Between two looks.")
@click.option("--doctor/--no-doctor", default=True, help="Whether to look for holes too, which takes longest.")
@shared_options
@click.pass_obj
def status(settings: Settings, resource: str | None, watch: bool, every: float, doctor: bool) -> None:
    """Show the authority, open leases, refusals and protected tables; with RESOURCE that lease, open or closed.

    Needs the rights of: pyfence role add ROLE --as monitor. Exits with 1 for a RESOURCE that never had a lease. With
    --watch and --json there is one document a line.
    """
    audits = Audits(doctor)
    if watch:
        _watch(settings, resource, every, audits)
        return
    seen = _look(settings, resource, audits)
    output = Output(settings)
    output.document(seen.document, lambda: seen.print(output))


def _look(settings: Settings, resource: str | None, audits: Audits) -> Look:
    with session(settings, hints=MONITOR_HINTS, timeout=LONG_TIMEOUT) as database:
        return look(database, resource, audits)


def _watch(settings: Settings, resource: str | None, every: float, audits: Audits) -> None:
    """Look until interrupted. A database that does not answer is looked for again; any other failure ends it."""
    drawn = is_terminal() and not settings.json
    with _screen(drawn):
        try:
            while True:
                try:
                    seen = _look(settings, resource, audits)
                except Exception as exc:
                    failure = failure_of(exc)
                    if failure is None or failure.exit_code != ExitCode.UNREACHABLE:
                        raise
                    _show_failure(settings, failure, drawn=drawn)
                else:
                    _show(settings, seen, drawn=drawn)
                time.sleep(every)
        except (KeyboardInterrupt, click.Abort):
            return


def _show(settings: Settings, seen: Look, *, drawn: bool) -> None:
    if settings.json:
        moment = datetime.now(UTC)
        write(json.dumps({"at": moment, **seen.document}, ensure_ascii=True, default=json_value) + "\n")
        return
    parts: list[str] = []
    output = Output(settings, to=parts.append)
    output.line(f"{local_time(datetime.now(UTC))}", style="dim")
    seen.print(output)
    _draw("".join(parts), drawn=drawn)


def _show_failure(settings: Settings, failure: Failure, *, drawn: bool) -> None:
    words = f"{local_time(datetime.now(UTC))} no answer: {failure.message} [{failure.code}]"
    if drawn:
        parts: list[str] = []
        Output(settings, to=parts.append).line(words, style="bold red")
        _draw("".join(parts), drawn=True)
    else:
        say(words)


def _draw(shown: str, *, drawn: bool) -> None:
    if not drawn:
        write(shown + "\n")
        return
    lines = shown.splitlines()
    room = shutil.get_terminal_size().lines
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]
    write(_HOME + "\n".join(line + _CLEAR_LINE for line in lines) + _CLEAR_REST)


@contextmanager
def _screen(drawn: bool) -> Iterator[None]:
    """A terminal gets its old screen and cursor back, however it ends."""
    if not drawn:
        yield
        return
    write(_ENTER)
    try:
        yield
    finally:
        write(_LEAVE)
