"""What a command prints: a table in a terminal, aligned text in a pipe, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import click

from pyfence.cli._failures import Failure, OutputFailed, redacted
from pyfence.cli._settings import Settings

Row = Mapping[str, Any]
Style = Callable[[str], str | None]
"""From a cell's text to its rich style, or None."""

_LEAST_FOLDED = 16  # columns that a folded text keeps at least
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories that could move a cursor, reorder a line or begin a new one


def printable(text: str, *, keep: str = "") -> str:
    """`text` with control and formatting characters escaped, so that no stored name can play with a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c in keep or unicodedata.category(c) not in _INVISIBLE
        else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def say(text: str) -> None:
    """Talk: a line on stderr."""
    click.echo(printable(text), err=True)


class Column:
    """A column of a table: heading, the rows' field, how to write it, and how to colour it.

    `folds`: whether its text may go on in a second line where a terminal is narrow. `drawn`: it only draws what
    another column says, and is left out where there is no terminal.
    """

    def __init__(
        self,
        heading: str,
        field: str,
        text: Callable[[Any], str] = str,
        *,
        right: bool = False,
        folds: bool = False,
        drawn: bool = False,
        style: Style = lambda text: None,
    ) -> None:
        self.heading = heading
        self.field = field
        self.right = right
        self.folds = folds
        self.drawn = drawn
        self.style = style
        self._text = text

    def cell(self, row: Row) -> str:
        """What stands in this column for a row; '-' for null."""
        value = row[self.field]
        return "-" if value is None else printable(self._text(value)) or "-"


class Output:
    """Writes to stdout in the form that the settings ask for. Nothing else in the package prints data.

    `to`: where its text goes instead, a piece at a time.
    """

    def __init__(self, settings: Settings, *, to: Callable[[str], object] | None = None) -> None:
        self._json = settings.json
        self._write = to or write

    def document(self, document: Mapping[str, Any], text: Callable[[], None]) -> None:
        """With --json `document`, else whatever `text` prints."""
        if self._json:
            write_json(document)
        else:
            text()

    def line(self, text: str, *, style: str | None = None) -> None:
        """One line of text, in a rich style where there is a terminal."""
        text = printable(text)
        self._write((_styled(text, style) if style and is_terminal() else text) + "\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Row], *, title: str | None = None) -> None:
        """A table, with a title where there are several of them."""
        if is_terminal():
            self._write(_rich_table(columns, rows, title))
        else:
            self._write(plain_table([column for column in columns if not column.drawn], rows, title))


def plain_table(columns: Sequence[Column], rows: Sequence[Row], title: str | None) -> str:
    """Headings and rows in aligned columns, two spaces apart."""
    from rich.cells import cell_len

    lines = [[column.heading.upper().replace(" ", "_") for column in columns]]
    lines += [[column.cell(row) for column in columns] for row in rows]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    text = f"{title}\n" if title else ""
    for line in lines:
        cells = []
        for column, width, cell in zip(columns, widths, line, strict=True):
            padding = " " * (width - cell_len(cell))
            cells.append(padding + cell if column.right else cell + padding)
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _styled(text: str, style: str) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    with console.capture() as captured:
        console.print(Text(text, style=style), end="")
    return captured.get()


def _rich_table(columns: Sequence[Column], rows: Sequence[Row], title: str | None) -> str:
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        header_style="bold",
        padding=(0, 1, 0, 0),
    )
    cells = [[column.cell(row) for column in columns] for row in rows]
    needed = 0
    for number, column in enumerate(columns):
        natural = max(cell_len(text) for text in (column.heading, *(line[number] for line in cells)))
        least = min(natural, _LEAST_FOLDED) if column.folds else natural
        needed += least + 2
        justify: Literal["right", "left"] = "right" if column.right else "left"
        table.add_column(column.heading, justify=justify, overflow="fold", no_wrap=not column.folds, min_width=least)
    for line in cells:
        table.add_row(*(Text(text, style=column.style(text) or "") for column, text in zip(columns, line, strict=True)))
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(console.width, needed)  # a terminal narrower than that breaks lines, but nothing is left out
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def is_terminal() -> bool:
    """Whether lines and colours on stdout would be seen as such."""
    stream: TextIO | None = sys.stdout
    if stream is None or not stream.isatty() or os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def write_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout. Integers keep every digit; timestamps are ISO 8601 with an offset."""
    write(json.dumps(document, indent=2, ensure_ascii=True, default=json_value) + "\n")


def json_value(value: object) -> str:
    """The form in JSON of what the driver returns and JSON has no word for. Raises TypeError."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"no JSON form for a {type(value).__name__}")


def write(text: str) -> None:
    """Text on stdout. Raises OutputFailed where that is not possible; the first failure is the last try."""
    stream = sys.stdout
    if stream is None:
        raise OutputFailed("there is no standard output")
    try:
        stream.write(text)
        stream.flush()
    except OSError as exc:
        raise OutputFailed(exc.strerror or str(exc)) from exc


def tell_failure(failure: Failure, *, as_json: bool) -> None:
    """With --json an object on stdout, else one clear message on stderr."""
    if as_json:
        fields = ("code", "message", "detail", "hint")
        write_json({"error": {name: getattr(failure, name) for name in fields}})
        return
    lines = [f"error: {failure.message} [{failure.code}]"]
    if failure.detail:
        lines.append(f"detail: {failure.detail}")
    if failure.hint:
        lines.append(f"hint: {failure.hint}")
    for line in lines:
        click.echo(printable(redacted(line).replace("\n", "\n  "), keep="\n"), err=True)


def local_time(value: datetime) -> str:
    """A timestamp for people: this machine's time zone, to the second, with its offset as PostgreSQL writes it."""
    return value.astimezone().isoformat(sep=" ", timespec="seconds").removesuffix(":00")


def duration(seconds: float) -> str:
    """A length of time for people, rounded down: 8.2s, 4m05s, 3h20m, 2d04h."""
    if seconds < 60:
        return f"{int(seconds * 10) / 10}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"
