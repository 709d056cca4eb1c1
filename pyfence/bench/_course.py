"""The order of the measurements, and the servers they run on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from pyfence.bench._groups import Size, Work
from pyfence.bench._measure import Group, Meter, Result, measured
from pyfence.bench._place import Place, given_database, own_server

_WALL_ONLY = (
    "The processor time of the backend cannot be read (a remote server, or no /proc): everything is wall time as the "
    "client sees it, round trips included, and has no targets but for durable commits."
)
_NOT_DURABLE = "The server runs with fsync off: durable commits were not measured."


@dataclass
class Course:
    """What has been measured so far, also if it ends early."""

    size: Size
    results: list[Result] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, database_url: str | None) -> None:
        """Measure everything. Raises BenchError, FenceError or psycopg.Error where that cannot be done."""
        with _ended_in_order():
            if database_url is not None:
                with given_database(database_url) as place:
                    self._lazy(place)
                    self._durable(place)
                return
            with own_server(durable=False) as place:
                self._lazy(place)
            with own_server(durable=True) as place:
                self._durable(place)

    def _lazy(self, place: Place) -> None:
        work = Work(place, self.size)
        self._measure(
            place, work.bulk, lambda: work.single(durable=False), work.fenced_update, work.acquire_and_release
        )

    def _durable(self, place: Place) -> None:
        if place.commits_are_durable:
            self._measure(place, lambda: Work(place, self.size).single(durable=True))
        else:
            self.notes.append(_NOT_DURABLE)

    def _measure(self, place: Place, *groups: Callable[[], Group]) -> None:
        """Build each group when its turn comes, and measure it."""
        meter = Meter(place.connection)
        if not meter.reads_cpu and _WALL_ONLY not in self.notes:
            self.notes.append(_WALL_ONLY)
        if place.described not in self.servers:
            self.servers.append(place.described)
        for build in groups:
            group = build()
            if sys.stderr.isatty():
                print(f"measuring: {group.name} ...", file=sys.stderr)
            self.results += measured(group, meter)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends us by way of every `finally`, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
