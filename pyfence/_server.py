"""A throwaway PostgreSQL server for the demo, the benchmark and the tests.

It listens on 127.0.0.1 alone, ends with the process that started it, and leaves nothing behind. It trusts every local
connection: it is meant for minutes, with nothing in it worth keeping.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from pyfence._programs import Programs, ServerError, Workspace, choose_parent, last_lines

__all__ = ["HOST", "SUPERUSER", "Server", "ServerError", "free_port", "is_ready", "setting_arguments"]

SUPERUSER = "postgres"
HOST = "127.0.0.1"


class Server:
    """A cluster of its own, made, started, stopped and removed: `with Server() as server: connect(server.url())`."""

    def __init__(
        self,
        *,
        fsync: bool = False,
        settings: Mapping[str, str | int | bool] | None = None,
        directory: Path | None = None,
        outlive: bool = False,
    ) -> None:
        """Nothing happens before `start()`.

        `fsync`: commits as durable as in production, on disk and not in memory; `settings`: further server settings;
        `directory`: the folder to make the cluster's own folder in; `outlive`: the server stays up after the `with`
        block and after this process, until it gets a SIGINT (`stop_command`).
        """
        self.port = 0
        self.outlive = outlive
        self._durable = fsync
        self._settings = dict(settings or {})
        self._parent = directory
        self._programs: Programs | None = None
        self._workspace: Workspace | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def start(self) -> Self:
        """Make the cluster and start it; returns when it accepts connections (about a second).

        Raises ServerError, and leaves nothing behind, if it does not start.
        """
        if self._process is not None:
            return self
        try:
            programs = self._programs = Programs()
            parent = self._parent or choose_parent(programs.account, in_memory=not self._durable)
            self._workspace = Workspace(parent)
            data = self._workspace.folder("data", programs.account)
            initdb = ["-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions"]
            programs.run("initdb", *initdb, *([] if self._durable else ["--no-sync"]))
            for attempt in range(5):
                if self._try_to_start(programs, self._workspace, data):
                    return self
                time.sleep(0.01 * attempt)  # somebody took the port between our look and the server's
            raise ServerError(f"no free port on {HOST} for the server")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server (fast; by force after 10 s) and remove its folder. Stopping twice is fine.

        A process forked from the one that made this object stops nothing.
        """
        if os.getpid() != self._owner:
            return
        if self._process is not None:
            for how, patience in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, None)):
                self._process.send_signal(how)  # does nothing once the process has been waited for
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(patience)
                    break
            self._process = None
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None
        if self._programs is not None:
            self._programs.close()
            self._programs = None

    def url(self, database: str = "postgres", *, user: str = SUPERUSER) -> str:
        """The libpq URL of one of its databases; every user is trusted, the default is the superuser."""
        return f"postgresql://{quote(user, safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._running().pid

    @property
    def version(self) -> str:
        """The server's version, such as 18.6."""
        if self._programs is None:
            raise ServerError("the server has not been started")
        return self._programs.version

    @property
    def directory(self) -> Path:
        """The cluster's own folder, with `data` and `server.log` in it."""
        if self._workspace is None:
            raise ServerError("the server has not been started")
        return self._workspace.path

    @property
    def stop_command(self) -> str:
        """The shell command that ends a server left running with `outlive`; the next server removes its folder."""
        return f"kill -INT {self.pid}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.outlive:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server has not been started")
        return self._process

    def _try_to_start(self, programs: Programs, workspace: Workspace, data: Path) -> bool:
        """False: the port was taken. ServerError: it did not start for another reason."""
        self.port = free_port()
        log_path = workspace.path / "server.log"
        arguments = self._arguments(data)
        with log_path.open("wb") as log:
            process = programs.start("postgres", arguments, log=log, lock=workspace.lock, outlive=self.outlive)
        self._process = process
        deadline = time.monotonic() + 60
        while process.poll() is None:
            if is_ready(data, process.pid):
                return True
            if time.monotonic() > deadline:
                raise ServerError(f"the server was not ready after 60 s: {last_lines(_read(log_path))}")
            time.sleep(0.02)
        self._process = None
        output = _read(log_path)
        if "Address already in use" in output:
            return False
        raise ServerError(f"the server did not start: {last_lines(output)}")

    def _arguments(self, data: Path) -> list[str]:
        settings: dict[str, str | int | bool] = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "logging_collector": False,
            "lc_messages": "C",
        }
        if not self._durable:
            settings |= {"fsync": False, "full_page_writes": False}
        settings |= self._settings
        return ["-D", str(data), *setting_arguments(settings)]


def setting_arguments(settings: Mapping[str, str | int | bool]) -> list[str]:
    """Settings as the arguments of `postgres`; the last of two equal names wins."""
    return [arg for name, value in settings.items() for arg in ("-c", f"{name}={_setting(value)}")]


def _setting(value: str | int | bool) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def is_ready(data: Path, pid: int) -> bool:
    """Whether the postmaster `pid` accepts connections, by its own word: another server on the port cannot mislead."""
    try:
        lines = (data / "postmaster.pid").read_text().split("\n")
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
