"""Three PostgreSQL nodes under Patroni with its own raft: nothing but Python packages, on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ha.nodes import DATABASE, Stage, shared_memory
from harness import ROLES, install, wait_until

from pyfence import _server

NAMES = ("n1", "n2", "n3")
TTL = 20  # seconds; the least that Patroni takes


class Member:
    """One node: a Patroni process and the postmaster it looks after."""

    def __init__(self, trio: Trio, name: str) -> None:
        self.trio = trio
        self.name = name
        self.port, self.rest, self.raft = (_server.free_port() for _ in range(3))
        self.data = trio.folder / name
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = python(self.trio.stage, "-m", "patroni", str(self.trio.folder / f"{self.name}.yml"))
        with (self.trio.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self.trio.stage.workspace.lock,),
                cwd="/",
            )

    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def backends(self) -> list[int]:
        """The postmaster and its children."""
        with suppress(OSError, ValueError, IndexError):
            postmaster = self.postmaster()
            children = []
            for stat in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError, IndexError, ValueError):
                    if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == postmaster:
                        children.append(int(stat.parent.name))
            if str(self.data) in Path(f"/proc/{postmaster}/cmdline").read_text():
                return [postmaster, *children]
        return []

    def signal(self, what: signal.Signals, *, patroni: bool = True, postgres: bool = True) -> None:
        pids = [self.process.pid] if patroni and self.process is not None else []
        pids += self.backends() if postgres else []
        if what == signal.SIGKILL:
            self.trio.stage.left |= shared_memory(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def log(self) -> str:
        return (self.trio.folder / f"{self.name}.log").read_text(errors="replace")

    def url(self, user: str, database: str = DATABASE) -> str:
        return f"postgresql://{user}@{_server.HOST}:{self.port}/{database}?connect_timeout=2"


class Trio:
    """The cluster. `synchronous`: commits wait for a standby, and only that one may be promoted."""

    def __init__(self, stage: Stage, *, synchronous: bool) -> None:
        self.stage = stage
        self.synchronous = synchronous
        self.folder = stage.workspace.folder("trio", stage.programs.account)
        self.members = {name: Member(self, name) for name in NAMES}
        for member in self.members.values():
            path = self.folder / f"{member.name}.yml"
            path.write_text(json.dumps(self._configuration(member, synchronous=synchronous)))  # JSON is YAML
            stage.own(path)

    def start(self) -> None:
        for member in self.members.values():
            member.start()
        self.healthy()
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            for role in ROLES:
                connection.execute(f"create role {role} login")
            connection.execute(f"create database {DATABASE} owner fence_owner")
        install(self.url("fence_owner"))

    def healthy(self, streaming: int = 2, deadline: float = 90) -> float:
        """Wait for a leader with that many standbys that stream from it, one of them known as synchronous where only
        such a one may be promoted; the seconds it took."""
        began = time.monotonic()

        def whole() -> bool:
            members = self.state()
            follow = [m for m in members if m["role"] != "leader" and m["state"] == "streaming"]
            promotable = not self.synchronous or "sync_standby" in [m["role"] for m in follow]
            return len(follow) >= streaming and promotable and self.leader() is not None

        wait_until(whole, "a leader and its standbys", deadline=deadline, state=self._state_text)
        return time.monotonic() - began

    def leader(self, *, but: Member | None = None) -> Member | None:
        """Who leads, by the word of any member that answers (`but`: not counting what that one says of itself)."""
        for member in self.state(but=but):
            if member["role"] == "leader" and member["state"] == "running":
                found = self.members[member["name"]]
                return None if found is but else found
        return None

    def the_leader(self) -> Member:
        found: list[Member] = []

        def known() -> bool:
            leader = self.leader()
            found[:] = [leader] if leader else []
            return bool(found)

        wait_until(known, "there is a leader", deadline=60, state=self._state_text)
        return found[0]

    def state(self, *, but: Member | None = None) -> list[dict[str, Any]]:
        for member in self.members.values():
            if member is but:
                continue
            with suppress(OSError, ValueError, KeyError):
                address = f"http://{_server.HOST}:{member.rest}/cluster"
                with urllib.request.urlopen(address, timeout=2) as answer:
                    members: list[dict[str, Any]] = json.load(answer)["members"]
                    return members
        return []

    def switch_over(self, leader: Member) -> None:
        body = json.dumps({"leader": leader.name}).encode()
        request = urllib.request.Request(
            f"http://{_server.HOST}:{leader.rest}/switchover", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200, answer.read()

    def url(self, user: str, database: str = DATABASE) -> str:
        hosts = ",".join(f"{_server.HOST}:{member.port}" for member in self.members.values())
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=2"

    def close(self) -> None:
        for member in self.members.values():
            member.signal(signal.SIGCONT)
            with contextlib.suppress(ProcessLookupError):
                member.signal(signal.SIGKILL)
        for member in self.members.values():
            if member.process is not None:
                member.process.wait(20)

    def wait_for(self, condition: Callable[[], bool], what: str, deadline: float = 90) -> None:
        wait_until(condition, what, deadline=deadline, state=self._state_text)

    def _state_text(self) -> str:
        logs = "\n".join(f"--- {name}\n{member.log()[-800:]}" for name, member in self.members.items())
        return f"{self.state()}\n{logs}"

    def _configuration(self, member: Member, *, synchronous: bool) -> dict[str, Any]:
        here = f"{_server.HOST}:{member.port}"
        rest = f"{_server.HOST}:{member.rest}"
        return {
            "scope": "trio",
            "name": member.name,
            "restapi": {"listen": rest, "connect_address": rest},
            "raft": {
                "data_dir": str(self.folder / f"raft-{member.name}"),
                "self_addr": f"{_server.HOST}:{member.raft}",
                "partner_addrs": [f"{_server.HOST}:{m.raft}" for m in self.members.values() if m is not member],
            },
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": 2,
                    "retry_timeout": 3,
                    "primary_start_timeout": 0,
                    "maximum_lag_on_failover": 16 << 20,
                    "synchronous_mode": synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "use_slots": True,
                        "parameters": {
                            "wal_level": "replica",
                            "wal_log_hints": "on",
                            "hot_standby": "on",
                            "max_connections": 60,
                            "shared_buffers": "32MB",
                            "fsync": "off",
                        },
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"],
            },
            "postgresql": {
                "listen": here,
                "connect_address": here,
                "data_dir": str(member.data),
                "bin_dir": str(self.stage.programs.bindir),
                "pgpass": str(self.folder / f"pgpass-{member.name}"),
                "pg_hba": [f"host {kind} all 127.0.0.1/32 trust" for kind in ("all", "replication")]
                + ["local all all trust"],
                "authentication": {
                    "replication": {"username": "replicator"},
                    "superuser": {"username": "postgres"},
                    "rewind": {"username": "rewinder"},
                },
                "parameters": {"unix_socket_directories": str(self.folder), "logging_collector": "off"},
            },
        }  # fmt: skip


def python(stage: Stage, *arguments: str) -> list[str]:
    """This Python as the servers' account, which may read it wherever it is; it ends, and its server, with us."""
    account = stage.programs.account
    prefix = ["setpriv", "--pdeathsig", "TERM"]
    if account is not None:
        rights = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
        prefix += ["--reuid", str(account.uid), "--regid", str(account.gid), "--clear-groups", *rights]
    return [*prefix, "--", sys.executable, *arguments]


def require_patroni(stage: Stage) -> None:
    """Skip where Patroni, or its raft, is not there for the account that runs the servers."""
    if importlib.util.find_spec("patroni") is None:
        pytest.skip("Patroni is not installed (the extra 'ha'): nothing about it is shown")
    if subprocess.run(python(stage, "-c", "import patroni.dcs.raft, psycopg"), capture_output=True, cwd="/").returncode:
        pytest.skip("the servers' account cannot run Patroni from this environment: nothing about it is shown")
