"""A PgBouncer of the tests' own, in transaction mode, before the tests' server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from harness import ROLES, wait_until

from pyfence import _programs, _server

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


class PgBouncer:
    """`with PgBouncer(server_port, size=1) as bouncer: connect(bouncer.url(db.url("app")))`; runs as nobody special."""

    def __init__(self, server_port: int, *, size: int = 1, round_robin: bool = False, more: str = "") -> None:
        self._server_port = server_port
        self._size = size
        self._round_robin = round_robin
        self._more = more
        self.port = 0

    def __enter__(self) -> Self:
        account = _programs.find_account()
        self._workspace = _programs.Workspace(_programs.choose_parent(account))
        folder = self._workspace.folder("pgbouncer", account)
        self.port = _server.free_port()
        for name, text in (("pgbouncer.ini", self._settings(folder)), ("users.txt", self._users())):
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o644)
        user = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
        assert PROGRAM is not None
        self._log = open(self._workspace.path / "pgbouncer.log", "wb")
        self._process = subprocess.Popen(
            [PROGRAM, str(folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd="/",
            pass_fds=(self._workspace.lock,),
            **user,
        )
        try:
            wait_until(self._answers, "PgBouncer answers", state=self.log)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._workspace.close()

    def url(self, url: str) -> str:
        """The same database and role, through PgBouncer."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.username}@{_server.HOST}:{self.port}"))

    def log(self) -> str:
        return (self._workspace.path / "pgbouncer.log").read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log()
        try:
            psycopg.connect(host=_server.HOST, port=self.port, user="app", dbname="pgbouncer", autocommit=True).close()
        except psycopg.OperationalError:
            return False
        return True

    def _users(self) -> str:
        return "".join(f'"{role}" ""\n' for role in ROLES)

    def _settings(self, folder: Path) -> str:
        return f"""
[databases]
* = host={_server.HOST} port={self._server_port}

[pgbouncer]
listen_addr = {_server.HOST}
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
admin_users = app
pool_mode = transaction
default_pool_size = {self._size}
server_round_robin = {int(self._round_robin)}
max_client_conn = 200
{self._more}
"""
