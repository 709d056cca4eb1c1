"""Running the demo and the benchmark as a user does: in a process of their own, found again by a mark they carry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Puts the server's folder into one of the test's own, whatever the program asks for.
_IN_FOLDER = """
import functools, pathlib, pyfence._server
pyfence._server.Server = functools.partial(pyfence._server.Server, directory=pathlib.Path({folder!r}))
"""
HASTE = "import pyfence.demo._story as story; story.SHORT = 0.5"
_RUN = "import json, sys, pyfence.{what}; sys.exit(pyfence.{what}.run(**json.loads(sys.argv[1])))"


class Runner:
    """Starts `pyfence.demo.run()` or `pyfence.bench.run()`, and knows what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"PYFENCE_TEST_MARK={uuid.uuid4().hex}"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, what: str = "demo", *, before: str = "", **options: Any) -> subprocess.Popen[str]:
        """Start it with its output in pipes; `before`: Python to run first, in the same process."""
        name, _, value = self._mark.partition("=")
        environment = {**os.environ, name: value}
        in_folder = _IN_FOLDER.format(folder=str(self.folder))
        process = subprocess.Popen(
            [sys.executable, "-c", "\n".join((in_folder, before, _RUN.format(what=what))), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._started.append(process)
        return process

    def run(self, what: str = "demo", *, before: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        """Start it and wait for its end."""
        process = self.start(what, before=before, **options)
        out, err = process.communicate(timeout=90)
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def left_running(self, patience: float = 0.0) -> list[str]:
        """The command lines of what is still running of all that was started; waits up to `patience` s for none."""
        deadline = time.monotonic() + patience
        while (found := self._running()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def left_folders(self) -> list[str]:
        """What is left of the folders of servers."""
        return [path.name for path in self.folder.iterdir()]

    def close(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _running(self) -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # gone meanwhile, or somebody else's
        return found


@pytest.fixture
def runner() -> Iterator[Runner]:
    """Runs the demo with its server in a folder of the test's own."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc, to find out what is left running")
    folder = Path(tempfile.mkdtemp(prefix="pyfence-test-", dir="/tmp"))  # pytest's own are closed to a server's account
    folder.chmod(0o755)
    runner = Runner(folder)
    yield runner
    runner.close()
    shutil.rmtree(folder, ignore_errors=True)
