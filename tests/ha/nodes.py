"""Real clusters that crash, are copied, restored, promoted and rewound; and what must hold of their tokens.

A `Stage` makes the nodes of one scenario and ends them. All nodes of a major begin as copies of one data directory with
pyfence installed, which saves their initdb.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from guards.scene import Lease
from harness import ROLES, Connection, install, wait_until

from pyfence import _programs, _server

DATABASE = "app"
RESOURCE = "report:1"
SETTINGS: dict[str, str | int | bool] = {
    "listen_addresses": _server.HOST,
    "unix_socket_directories": "",
    "fsync": False,
    "wal_level": "logical",
    "wal_log_hints": True,
    "wal_keep_size": "512MB",
    "max_connections": 40,
    "shared_buffers": "32MB",
    "autovacuum": False,
    "lc_messages": "C",
    "hot_standby": True,
}


class Node:
    """One cluster: its data directory and, while it runs, its postmaster."""

    def __init__(self, stage: Stage, name: str, **settings: str | int | bool) -> None:
        self.stage = stage
        self.name = name
        self.data = stage.workspace.path / name
        self.port = 0
        self.settings = settings
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> Node:
        """Returns when it accepts connections, a standby read-only ones."""
        self.port = _server.free_port()
        settings = {**SETTINGS, "port": self.port, "cluster_name": self.name, **self.settings}
        arguments = ["-D", str(self.data), *_server.setting_arguments(settings)]
        with (self.stage.workspace.path / f"{self.name}.log").open("ab") as log:
            self.process = self.stage.popen("postgres", arguments, log=log, environment=self.environment)
        process = self.process

        def ready() -> bool:
            if process.poll() is not None:
                pytest.fail(f"{self.name} did not start: {self.log()[-2000:]}")
            return _server.is_ready(self.data, process.pid)

        wait_until(ready, f"{self.name} is ready", deadline=60, state=self.log)
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """A fast shutdown (SIGINT), or an immediate one (SIGQUIT)."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(60)
        self.process = None

    def kill(self) -> None:
        """SIGKILL for the postmaster and all its children at the same moment: nobody gets to write anything."""
        assert self.process is not None
        pids = [self.process.pid, *self.children()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that none of them sees another one die
        self.stage.left |= shared_memory(pids)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        wait_until(lambda: not any(_runs(pid) for pid in pids), f"all of {self.name} is dead")

    def children(self) -> list[int]:
        assert self.process is not None
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == self.process.pid:
                    found.append(int(stat.parent.name))
        return found

    def log(self) -> str:
        return (self.stage.workspace.path / f"{self.name}.log").read_text(errors="replace")

    def promote(self) -> None:
        with self.connect("postgres") as connection:
            assert connection.execute("select pg_promote(true, 60)").fetchone() == (True,)

    # -- other nodes made of it ----------------------------------------------------------------------------------------

    def standby(self, name: str, **settings: str | int | bool) -> Node:
        """A standby of this node, started and in step with it."""
        node = self.base_backup(name, "-R")
        node.follow(self)
        node.settings |= settings
        node.start()
        node.catch_up(self)
        return node

    def base_backup(self, name: str, *options: str) -> Node:
        node = self.stage.node(name)
        url = f"host={_server.HOST} port={self.port} user=postgres"
        fast = ["-c", "fast", "-X", "stream", "--no-sync"]
        self.stage.run("pg_basebackup", "-d", url, "-D", str(node.data), *fast, *options)
        return node

    def follow(self, primary: Node) -> None:
        """Be a standby of `primary` from the next start on."""
        conninfo = f"host={_server.HOST} port={primary.port} user=postgres application_name={self.name}"
        self.settings["primary_conninfo"] = conninfo
        (self.data / "standby.signal").touch()
        self.stage.own(self.data / "standby.signal")

    def copy(self, name: str) -> Node:
        """The files as they are at this moment; of a running node, held meanwhile, a crash-consistent snapshot."""
        node = self.stage.node(name)
        held: list[int] = []

        def hold(*pids: int) -> None:
            for pid in pids:
                with suppress(ProcessLookupError):  # one that has ended meanwhile writes nothing
                    os.kill(pid, signal.SIGSTOP)
                    held.append(pid)

        try:
            if self.process:
                hold(self.process.pid)  # first: it starts no others then
                hold(*self.children())
            subprocess.run(["cp", "-a", str(self.data), str(node.data)], check=True)
        finally:
            for pid in reversed(held):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        (node.data / "postmaster.pid").unlink(missing_ok=True)  # the original's
        return node

    def catch_up(self, primary: Node) -> None:
        """Wait until everything that the primary has written is replayed here."""
        primary.execute("select pg_logical_emit_message(true, 'test', 'flush')", user="postgres")
        ((lsn,),) = primary.execute("select pg_current_wal_flush_lsn()", user="postgres")
        query = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(
            lambda: self.execute(query, (lsn,), user="postgres") == [(True,)],
            f"{self.name} has caught up",
            state=self.log,
        )

    # -- SQL -----------------------------------------------------------------------------------------------------------

    def url(self, user: str = "app", database: str = DATABASE) -> str:
        return f"postgresql://{user}@{_server.HOST}:{self.port}/{database}"

    def connect(self, user: str = "app", database: str = DATABASE, *, autocommit: bool = True) -> Connection:
        return psycopg.connect(self.url(user, database), autocommit=autocommit)

    def execute(self, statement: str, parameters: Any = None, *, user: str = "app_owner") -> list[Any]:
        with self.connect(user) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def acquire(self, resource: str = RESOURCE) -> Lease:
        ((granted, token, secret),) = self.execute(
            "select granted, token, secret from fence.acquire(%s, '1 h')", (resource,), user="app"
        )
        assert granted
        return Lease(resource, token, secret)

    def supersede(self, resource: str = RESOURCE) -> Lease:
        """The next holder, after the present one was revoked."""
        self.execute("select fence.revoke(%s, 'test')", (resource,))
        return self.acquire(resource)

    def tokens(self, count: int = 3) -> list[int]:
        return [self.supersede().token for _ in range(count)]

    def write(self, lease: Lease) -> None:
        """One guarded write under a lease."""
        with self.connect(autocommit=False) as connection:
            connection.execute("select fence.present(%s, %s, %s)", lease.parameters)
            connection.execute("update public.report set body = %s", (str(lease.token),))

    def refuses(self, lease: Lease, code: str) -> None:
        """The holder can neither write nor renew."""
        for call in (
            lambda: self.write(lease),
            lambda: self.execute("select fence.renew(%s, %s, %s)", lease.parameters, user="app"),
        ):
            with pytest.raises(psycopg.DatabaseError) as refused:
                call()
            assert refused.value.sqlstate == code, refused.value

    def authority(self) -> str:
        ((state,),) = self.execute("select state from fence._authority_state()", user="monitor")
        return str(state)


def shared_memory(pids: list[int]) -> set[Path]:
    """The files that PostgreSQL would remove at the end of these processes, and cannot where they are killed."""
    found: set[Path] = set()
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {Path(line[line.index("/dev/shm") :]) for line in lines if "/dev/shm/PostgreSQL." in line}
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Stage:
    """The nodes of one scenario, on the programs of one major version."""

    def __init__(self, programs: _programs.Programs, origin: Path | None) -> None:
        self.programs = programs
        self.origin = origin
        self.workspace = _programs.Workspace(_programs.choose_parent(programs.account))
        if programs.account is not None:
            os.chown(self.workspace.path, programs.account.uid, programs.account.gid)
        self.nodes: list[Node] = []
        self.left: set[Path] = set()

    def node(self, name: str, **settings: str | int | bool) -> Node:
        node = Node(self, name, **settings)
        self.nodes.append(node)
        return node

    def primary(self, name: str = "primary", **settings: str | int | bool) -> Node:
        """A running node with pyfence, and with a guarded table of one row."""
        assert self.origin is not None
        node = self.node(name, **settings)
        subprocess.run(["cp", "-a", str(self.origin), str(node.data)], check=True)
        return node.start()

    def run(self, program: str, *arguments: str) -> str:
        return self.programs.run(program, *arguments)

    def own(self, path: Path) -> None:
        if self.programs.account is not None:
            os.chown(path, self.programs.account.uid, self.programs.account.gid)

    def popen(self, program: str, arguments: list[str], *, log: Any, environment: dict[str, str]) -> Any:
        options = self.programs._process_options()
        options["env"] = {**options["env"], **environment}
        prefix = _programs._deathsig_prefix() if threading.current_thread() is threading.main_thread() else []
        command = [*prefix, self.programs.path(program), *arguments]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(self.workspace.lock,),
            start_new_session=True,
            **options,
        )

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                for pid in [node.process.pid, *node.children()]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                node.stop(signal.SIGQUIT)
        for path in self.left:  # of those that were killed and never started again
            path.unlink(missing_ok=True)
        self.workspace.close()


def make_origin(stage: Stage) -> Path:
    """The data directory that every primary is a copy of."""
    origin = stage.node("origin")
    initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
    stage.run("initdb", "-D", str(origin.data), *initdb)
    origin.start()
    with psycopg.connect(origin.url("postgres", "postgres"), autocommit=True) as connection:
        for role in ROLES:
            connection.execute(f"create role {role} login")
        connection.execute("alter role app set synchronous_commit = off")
        connection.execute(f"create database {DATABASE} owner fence_owner")
    origin.execute("grant create, usage on schema public to app_owner", user="postgres")
    install(origin.url("fence_owner"))
    origin.execute("create table public.report (id int primary key, body text)")
    origin.execute("grant select, insert, update, delete on public.report to app")
    origin.execute("insert into public.report values (1, 'old')")
    origin.execute("select fence.protect('public.report', 'report:{id}')")
    origin.stop()
    return origin.data


@dataclass
class Destination:
    """Something outside the database that remembers the highest token it has seen, as a storage service would."""

    highest: int = 0

    def write(self, token: int) -> bool:
        if token < self.highest:
            return False
        self.highest = token
        return True


@dataclass
class Tokens:
    """Every token that was granted, in the order of the branches of history."""

    before: list[int] = field(default_factory=list)
    old: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)

    def judge(self) -> None:
        """No token twice; the new branch above everything else; a destination refuses the old branch from then on."""
        every = [*self.before, *self.old, *self.new]
        assert len(set(every)) == len(every), "a token was granted twice"
        for branch in (self.before, self.old, self.new):
            assert branch == sorted(branch)
        assert min(self.new) > max([*self.before, *self.old])
        destination = Destination()
        for token in [*self.before, *self.old]:
            assert destination.write(token)
        for token in self.new:
            assert destination.write(token)
        for token in [*self.before, *self.old]:
            assert not destination.write(token)


def majors() -> Iterator[tuple[str, Path]]:
    """Every folder of complete programs, by major version: the ones the other tests use first."""
    known = set()
    for bindir in [_programs.find_bindir(), *filter(None, [_programs._wheel_bindir(), *_programs._system_bindirs()])]:
        done = subprocess.run([bindir / "postgres", "--version"], capture_output=True, text=True)
        if done.returncode or not (bindir / "pg_basebackup").is_file():
            continue
        major = done.stdout.split()[2].split(".")[0]
        if major not in known:
            known.add(major)
            yield major, bindir


def programs_of(bindir: Path) -> _programs.Programs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYFENCE_PG_BIN", str(bindir))
        return _programs.Programs()
