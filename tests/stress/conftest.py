"""A database whose whole history is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from harness import SUPERUSER, Database
from stress import tables
from stress.checker import Checker, Violation
from stress.history import Recorder
from stress.workload import Workload

#: Seconds that each test marked `stress` runs.
LONG = float(os.environ.get("PYFENCE_STRESS_SECONDS", "120"))


@dataclass
class Stress:
    """The workload, and the checker that is fed while it runs."""

    db: Database
    recorder: Recorder
    checker: Checker
    workload: Workload | None = None

    def run(
        self, seed: int, seconds: float, *, enough: Callable[[], bool] = lambda: False, writers: int = 6
    ) -> Workload:
        """Run until `enough()` or the time is over; everything is judged then."""
        workload = self.workload = Workload(self.db, seed, writers)

        def judge() -> bool:
            self.checker.feed(self.recorder.read())
            return enough()

        workload.run(judge, seconds)
        judge()
        return workload

    def trace(self, violation: Violation) -> list[str]:
        """What the writer did whose transaction broke a promise."""
        return [] if self.workload is None else self.workload.traces.get(violation.number, [])


@pytest.fixture
def stress(db: Database) -> Iterator[Stress]:
    """The guarded tables of stress.tables in a database of their own, recorded from before the first grant."""
    tables.make(db)
    superuser = db.connect(SUPERUSER, autocommit=True)
    recorder = Recorder(superuser, tables.GUARDED, tables.RECORDED)
    try:
        yield Stress(db, recorder, Checker(tables.GUARDED))
    finally:
        recorder.close()
