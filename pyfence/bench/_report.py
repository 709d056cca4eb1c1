"""The benchmark's figures as a table and as plain values."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyfence.bench._measure import Result

_PIPE_WIDTH = 120  # columns where there is no terminal


def console(*, quiet: bool) -> Console:
    """Where the table goes."""
    out = Console(quiet=quiet, highlight=False)
    if not out.is_terminal and out.width < _PIPE_WIDTH:
        out = Console(quiet=quiet, highlight=False, width=_PIPE_WIDTH)
    return out


def table(results: list[Result]) -> Table:
    """Without and with a guard: medians, ratios, the range of the middle half of the rounds, and targets."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        caption="Time in microseconds for each row, transaction or pair; medians of the rounds.",
        caption_justify="left",
    )
    shown.add_column("case")
    for heading in ("time", "without", "with", "ratio", "half lie in", "target"):
        shown.add_column(heading, justify="left" if heading == "time" else "right", no_wrap=True)
    group = ""
    for result in results:
        if result.group != group:
            group = result.group
            shown.add_row(Text(group, style="bold"))
        measured = "CPU" if result.measure == "cpu" else "wall"
        colour = {None: "", True: "green", False: "yellow"}[result.within]
        shown.add_row(
            f"  {result.variant}",
            measured,
            _short(result.unguarded),
            _short(result.guarded),
            Text(_short(result.ratio), style=colour),
            f"{_short(result.ratio_low)}..{_short(result.ratio_high)}",
            "" if result.target is None else f"<= {result.target:.2f}",
        )
    return shown


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def machine() -> dict[str, Any]:
    """What the figures depend on besides the server."""
    return {"system": platform.platform(), "processor": _processor(), "cpus": os.cpu_count()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def as_json(results: list[Result]) -> list[dict[str, Any]]:
    """The results as plain values; times in microseconds."""
    return [{**asdict(result), "within": result.within} for result in results]
