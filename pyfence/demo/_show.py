"""The demo on a terminal, or in a pipe: each step as it happens, and tables at the end."""

from __future__ import annotations

import textwrap

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pyfence.demo._record import Event, Record, Write

_ACTS = {
    1: "Act one: a worker wakes up after its lease has gone to somebody else",
    2: "Act two, the boundary: the old token arrives before the newer one has written anything",
}
_COLOURS = {"worker A": "yellow", "worker B": "green", "legacy job": "magenta", "forger": "red"}
_INDENT = 22  # columns before the text of a step
_PIPE_WIDTH = 120  # columns of the tables where there is no terminal


class Show:
    """Prints a record while it is written. `quiet`: prints nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = Console(quiet=quiet, highlight=False)
        if not self.console.is_terminal and self.console.width < _PIPE_WIDTH:
            self.console = Console(quiet=quiet, highlight=False, width=_PIPE_WIDTH)
        self._act = 0

    def say(self, text: str) -> None:
        """A line of the demo's own."""
        self.console.print(escape(text), soft_wrap=True)

    def event(self, event: Event) -> None:
        """A step, with the seconds since the beginning."""
        if event.act != self._act:
            self._act = event.act
            self.console.print()
            self.console.print(Text(_ACTS[event.act], style="bold"), soft_wrap=True)
        first, *rest = self._lines(event.text)
        style = "" if event.as_promised else "bold red"
        line = Text.assemble(
            (f"{event.at:6.2f} s  ", "dim"), (f"{event.who:<12}", _COLOURS.get(event.who, "cyan")), (first, style)
        )
        for more in rest:
            line.append(f"\n{' ' * _INDENT}{more}", style)
        self.console.print(line, soft_wrap=True)

    def end(self, record: Record, left_behind: list[str]) -> None:
        """The tables, the verdict, and what is still there."""
        if record.writes:
            self._tables(record)
        if record.writes or record.checks:
            self._verdict(record)
        if left_behind:
            self.say("Left behind:")
        for line in left_behind:
            self.say(f"  {line}")

    def _lines(self, text: str) -> list[str]:
        """The text broken to the terminal's width; in a pipe it stays one line."""
        if not self.console.is_terminal:
            return [text]
        return textwrap.wrap(text, max(self.console.width - _INDENT, 20))

    def _tables(self, record: Record) -> None:
        """Who held which token, and what became of each write."""
        leases = Table(
            title="Who held which token",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        for heading in ("act", "from", "resource", "holder", "token"):
            leases.add_column(heading, no_wrap=True)
        for held in record.leases:
            leases.add_row(str(held.act), f"{held.at:.2f} s", held.resource, held.who, str(held.token))
        writes = Table(
            title="Which writes were accepted",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        for heading in ("act", "writer", "token", "table", "outcome", "as promised"):
            writes.add_column(heading, no_wrap=True)
        for write in record.writes:
            writes.add_row(
                str(write.act),
                write.who,
                str(write.token or "none"),
                write.table,
                _outcome(write),
                Text("yes") if write.as_promised else Text(f"NO, promised {write.expected}", style="bold red"),
            )
        self.console.print()
        self.console.print(leases)
        self.console.print(writes)

    def _verdict(self, record: Record) -> None:
        """The last word."""
        if record.ok:
            count = len(record.writes) + len(record.checks)
            self.console.print(Text(f"All {count} outcomes are as promised.", style="bold green"))
            return
        self.console.print(Text("Not as promised:", style="bold red"))
        for difference in record.differences:
            self.say(f"  - {difference}")


def _outcome(write: Write) -> Text:
    if write.outcome == "refused":
        return Text(f"refused {write.code}", style="red")
    return Text(write.outcome, style="green")
