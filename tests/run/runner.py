"""`pyfence run` as its users start it: the installed program, real commands, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from cli.command import PROGRAM, Done, checked
from harness import Database, wait_until
from psycopg.conninfo import conninfo_to_dict

RESOURCE = "nightly"

#: A job that knows nothing of pyfence: runs the statements it is given, each committed, and stops at a refusal.
JOB = """
import sys, psycopg
try:
    with psycopg.connect(autocommit=True) as conn:
        for statement in sys.argv[1:]:
            cur = conn.execute(statement)
            print(*(cur.fetchone() or ()) if cur.description else ("done",), flush=True)
except psycopg.Error as exc:
    print(exc.sqlstate, flush=True)
    sys.exit(9)
"""


def job(*statements: str) -> list[str]:
    """The command line of a job."""
    return [sys.executable, "-c", JOB, *statements]


class Started:
    """A `pyfence run` on its way, and its command, whose pid is the first line that it must print."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.out = process.stdout
        self.first = self.out.readline().strip()

    @property
    def child(self) -> int:
        return int(self.first)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, code: int | None) -> Done:
        """Waits for its end, which must be with `code` (None: any)."""
        out, err = self.process.communicate(timeout=30)
        return checked(Done(self.process.returncode, out, err), code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=30)
        if self.first.isdigit() and is_alive(self.child):
            os.kill(self.child, signal.SIGKILL)


class Runner:
    """`pyfence run --resource nightly` over one database; the command finds it in the PG* variables."""

    def __init__(self, db: Database, user: str = "app") -> None:
        self.db = db
        parts = conninfo_to_dict(db.url(user))
        self.variables = {f"PG{name.upper()}": str(parts[name]) for name in ("host", "port", "user")}
        self.variables["PGDATABASE"] = str(parts["dbname"])

    def _command(self, options: tuple[str, ...], command: list[str]) -> list[str]:
        named = () if "--resource" in options else ("--resource", RESOURCE)
        return [str(PROGRAM), "run", *named, *options, "--", *command]

    def __call__(
        self, *options: str, command: list[str], code: int = 0, env: Mapping[str, str] | None = None, **more: Any
    ) -> Done:
        """Runs `command` to its end, which must be with `code`."""
        done = subprocess.run(
            self._command(options, command),
            env={**os.environ, **self.variables, **(env or {})},
            capture_output=True,
            text=True,
            timeout=30,
            **{"stdin": subprocess.DEVNULL, **more},
        )
        return checked(Done(done.returncode, done.stdout, done.stderr), code)

    def start(self, *options: str, command: list[str], env: Mapping[str, str] | None = None, **more: Any) -> Started:
        """Starts `command` and returns when it has printed its first line."""
        return Started(self.popen(*options, command=command, env=env, **more))

    def popen(
        self, *options: str, command: list[str], env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """Starts `pyfence run`, whatever becomes of it, in a process group of its own with this process as its parent.

        SIGTSTP stops no group that is orphaned, which this process's own is where it was started in the background.
        """
        if not {"process_group", "start_new_session"} & more.keys():
            more["process_group"] = 0
        more.setdefault("preexec_fn", _hears_of_hangups)
        return subprocess.Popen(
            self._command(options, command),
            env={**os.environ, **self.variables, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def asks(self) -> bool:
        """Whether a wrapper waits for the lease."""
        statement = "select pid from pg_stat_activity where datname = %s and application_name = 'pyfence'"
        return bool(self.db.cluster.admin.execute(statement, (self.db.name,)).fetchall())

    @property
    def state(self) -> str:
        """The lease's state and, where it is closed, why."""
        ((state, reason),) = self.db.execute(
            "select state, closed_reason from fence.leases where resource = %s", (RESOURCE,)
        )
        return f"{state}: {reason}" if reason else str(state)


def _hears_of_hangups() -> None:
    """Where the tests themselves run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def status_of(pid: int) -> str:
    """The process's state letter as ps has it, '' where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    return status_of(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    return status_of(pid) == "T"


def wait_until_gone(*pids: int) -> None:
    wait_until(lambda: not any(is_alive(pid) for pid in pids), f"{pids} are gone")


def children(pid: int) -> list[int]:
    """The direct children of a process that live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found
