"""pgbench in the background: writers that are no part of the test's own process."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from harness import Database

from pyfence import _programs


@dataclass(frozen=True)
class Report:
    """How a run ended. Times in seconds."""

    code: int
    transactions: int
    failed: int
    longest: float
    errors: str


class Pgbench:
    """A run of one script by many clients; `with` stops it early if need be."""

    def __init__(
        self, db: Database, folder: Path, script: str, *, clients: int, seconds: int, user: str = "app"
    ) -> None:
        self._folder = folder
        (folder / "script.sql").write_text(script)
        command = [program(db), "--no-vacuum", "--client", str(clients), "--jobs", "2", "--time", str(seconds)]
        command += ["--log", "--log-prefix", str(folder / "log"), "--file", str(folder / "script.sql"), db.url(user)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self._process.terminate()
            self._process.communicate()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def began(self) -> bool:
        """Whether transactions have been logged."""
        return any(path.stat().st_size > 0 for path in self._folder.glob("log.*"))

    def report(self) -> Report:
        """Wait for its end."""
        output, errors = self._process.communicate(timeout=90)
        found = {
            name: int(count)
            for name, count in re.findall(
                r"number of (transactions actually processed|failed transactions): (\d+)", output
            )
        }
        times = [
            int(line.split()[2]) / 1e6 for path in self._folder.glob("log.*") for line in path.read_text().splitlines()
        ]
        return Report(
            self._process.returncode,
            found.get("transactions actually processed", 0),
            found.get("failed transactions", 0),
            max(times, default=0.0),
            errors,
        )


def program(db: Database) -> str:
    """pgbench of the server's installation, else the wheel's, else any; the test is skipped where there is none."""
    beside = Path(db.cluster.server.programs.path("pgbench"))
    folders = [beside.parent, _programs._wheel_bindir(), *_programs._system_bindirs()]
    for folder in folders:
        if folder is not None and (folder / "pgbench").is_file():
            return str(folder / "pgbench")
    pytest.skip("there is no pgbench here")
