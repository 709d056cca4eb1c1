"""What the parts of a page share: text made safe, moments and numbers as text, and how much is shown one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from pyfence.cli._output import printable
from pyfence.cli._story import Moment

DETAILED = 1000  # spans, marks and rows, the newest, each on its own
STRETCHES = 200  # of time, for what is older


def text(value: object) -> str:
    """Anything as text in HTML, also inside an attribute."""
    return escape(printable(str(value)), quote=True)


def utc(value: datetime, *, fine: bool = False) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds" if fine else "seconds")


def ms(value: datetime) -> float:
    return round(value.timestamp() * 1000, 3)


def number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def stretches(moments: Sequence[Moment]) -> list[list[Moment]]:
    """Cut a list that is in order of time into stretches of equal length, empty ones left out."""
    if not moments:
        return []
    first, last = moments[0].at, moments[-1].at
    step = (last - first) / STRETCHES
    found: dict[int, list[Moment]] = {}
    for moment in moments:
        number = int((moment.at - first) / step) if step else 0
        found.setdefault(min(number, STRETCHES - 1), []).append(moment)
    return list(found.values())
