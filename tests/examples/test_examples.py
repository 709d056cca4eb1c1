"""Every example does its work; and frozen in the middle of it until its lease is somebody else's, it is refused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Database, wait_until

from pyfence import _server, testing

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = "2026-11-30"


class Stage:
    """The examples' tables, programs over them, and a lock that stops whoever reads the sales."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._frozen: set[int] = set()
        testing.install(db.url("fence_owner"))
        with db.connect("app_owner", search_path="public") as owner:
            owner.execute((EXAMPLES / "schema.sql").read_bytes())
            owner.execute("insert into sale (day, amount) values (%s, 40), (%s, 2)", (DAY, DAY))
            owner.execute("insert into job (day) values (%s)", (DAY,))
        self._owner = db.connect("app_owner")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A program in the examples' folder, with its output in files of its own."""
        url = self.db.url("app")
        environment = {**os.environ, "DATABASE_URL": url, "PYFENCE_DATABASE_URL": url}
        number = len(self._processes)
        with open(self.folder / f"{number}.out", "wb") as out, open(self.folder / f"{number}.err", "wb") as err:
            process = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=out, stderr=err)
        self._processes.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """What a program has printed so far."""
        number = self._processes.index(process)
        return (self.folder / f"{number}.out").read_text() + (self.folder / f"{number}.err").read_text()

    def run(self, *command: str) -> tuple[int, str]:
        """A program, to its end."""
        process = self.start(*command)
        return process.wait(60), self.said(process)

    def stop_readers(self) -> None:
        """From now on whoever reads the sales waits."""
        self._owner.execute("lock table public.sale in access exclusive mode")

    def wait_for_reader(self) -> None:
        """Until somebody does."""
        query = "select from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
        pid = self._owner.info.backend_pid
        wait_until(
            lambda: bool(self.db.cluster.admin.execute(query, (pid,)).fetchall()),
            "somebody reads the sales",
            deadline=40,
            state=lambda: "\n".join(map(self.said, self._processes)) + self.db.activity(),
        )

    def let_readers_go(self) -> None:
        self._owner.commit()

    def take_over(self, resource: str, statement: str) -> None:
        """The frozen one's time is over; somebody else takes the lease and writes."""
        testing.expire(self.db.url("fence_owner"), resource)
        with self.db.connect("app", search_path="public") as successor:
            query = "select granted, token, secret from fence.acquire(%s)"
            row = successor.execute(query, (resource,)).fetchone()
            assert row is not None
            assert row[0], f"{resource} was not free"
            successor.commit()
            successor.execute("select fence.present(%s, %s, %s)", (resource, *row[1:]))
            successor.execute(statement.encode())

    def freeze(self, *pids: int) -> None:
        self._frozen.update(pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self, *pids: int) -> None:
        self._frozen.difference_update(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.thaw(*self._frozen)
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def stage(db: Database, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(db, tmp_path)
    yield stage
    stage.close()


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, program, *arguments)


def test_nightly_report(stage: Stage) -> None:
    assert stage.run(*python("nightly_report.py", DAY)) == (0, f"{DAY}: 42\n")
    stage.stop_readers()
    process = stage.start(*python("nightly_report.py", DAY))
    stage.wait_for_reader()
    assert stage.run(*python("nightly_report.py", DAY))[0] == 3
    stage.freeze(process.pid)
    stage.take_over(f"report:{DAY}", f"update report set total = -1 where day = '{DAY}'")
    stage.let_readers_go()
    stage.thaw(process.pid)
    assert process.wait(60) == 4
    assert "[LF001]" in stage.said(process)
    assert stage.db.execute("select total from public.report") == [(-1,)]


def test_worker_loop(stage: Stage) -> None:
    stage.stop_readers()
    process = stage.start(*python("worker_loop.py", "--once"))
    stage.wait_for_reader()
    stage.freeze(process.pid)
    stage.take_over("job:1", "insert into result (job, total) values (1, -1)")
    stage.db.execute("insert into public.job (day) values (%s)", (DAY,), user="app")
    stage.let_readers_go()
    stage.thaw(process.pid)
    assert process.wait(60) == 0
    said = stage.said(process)
    assert "job 1: refused" in said
    assert "[LF001]" in said
    rows = "select job, total from public.result order by job"
    assert stage.db.execute(rows) in ([(1, -1)], [(1, -1), (2, 42)])  # it goes on, where it looks again
    assert stage.run(*python("worker_loop.py", "--once"))[0] == 0
    assert stage.db.execute(rows) == [(1, -1), (2, 42)]


def test_scheduler(stage: Stage) -> None:
    stage.stop_readers()
    process = stage.start(*python("scheduler.py"))
    stage.wait_for_reader()
    stage.freeze(process.pid)
    stage.take_over("scheduler", f"insert into tick (day) values ('{DAY}')")
    stage.let_readers_go()
    stage.db.execute("insert into public.sale (day, amount) values ('2026-12-01', 1)", user="app")
    stage.thaw(process.pid)
    wait_until(lambda: "not leading any more" in stage.said(process), "it steps back", deadline=40)
    process.terminate()
    assert process.wait(60) == 0
    assert "started" not in stage.said(process)
    assert stage.db.execute("select day from public.tick") == [(DAY,)]
    assert stage.db.execute("select count(*) from public.job") == [(1,)]
    testing.expire(stage.db.url("fence_owner"), "scheduler")
    second = stage.start(*python("scheduler.py"))
    wait_until(lambda: "started 2026-12-01" in stage.said(second), "the next leader starts it", deadline=40)
    second.terminate()
    assert second.wait(60) == 0


def test_fastapi_app(stage: Stage) -> None:
    for module in ("fastapi", "uvicorn", "greenlet"):
        pytest.importorskip(
            module, reason=f"{module} is not installed: the web example was not run; python3 dev.py setup"
        )
    port = _server.free_port()
    process = stage.start(
        sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", str(port), "--log-level", "error"
    )

    def listening() -> bool:
        assert process.poll() is None, stage.said(process)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def post(day: str) -> tuple[int, dict[str, object]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", f"/reports/{day}")
        with connection.getresponse() as response:
            return response.status, json.load(response)

    wait_until(listening, "uvicorn listens", deadline=40)
    status, answer = post(DAY)
    assert (status, answer["total"]) == (200, "42")
    stage.stop_readers()
    frozen = stage.db.in_thread(post, DAY)
    stage.wait_for_reader()
    status, answer = post(DAY)
    assert (status, answer["error"]) == (409, "LeaseHeld")
    stage.freeze(process.pid)
    stage.take_over(f"report:{DAY}", f"update report set total = -1 where day = '{DAY}'")
    stage.let_readers_go()
    stage.thaw(process.pid)
    status, answer = frozen.result(60)
    assert (status, answer["error"], answer["code"]) == (409, "StaleToken", "LF001")
    assert stage.db.execute("select total from public.report") == [(-1,)]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds psql in /proc; the legacy job was not frozen")
def test_legacy_billing_under_run(stage: Stage) -> None:
    psql = stage.db.cluster.server.programs.path("psql")
    if not Path(psql).exists():
        pytest.skip("this PostgreSQL comes without psql: the legacy job was not run")
    job = (str(psql), "-X", "-q", "-d", stage.db.url("outsider"), "-f", "legacy_billing.sql")
    pyfence = (sys.executable, "-c", "import sys; from pyfence.cli import main; sys.exit(main())")
    under = (*pyfence, "run", "--resource", "nightly-billing", "--", *job)
    code, said = stage.run(*job)
    assert code == 3
    assert "pyfence" in said
    assert stage.run(*under)[0] == 0
    assert stage.db.execute("select total from public.invoice") == [(42,)]
    stage.stop_readers()
    process = stage.start(*under)
    stage.wait_for_reader()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (child,) = (int(p) for p in children if Path(f"/proc/{p}/cmdline").read_bytes().startswith(os.fsencode(psql)))
    stage.freeze(process.pid, *map(int, children))
    stage.take_over("nightly-billing", "update invoice set total = -1")
    stage.let_readers_go()
    stage.thaw(child)
    wait_until(lambda: "superseded" in stage.said(process), "psql is refused", deadline=40)
    stage.thaw(process.pid, *(int(pid) for pid in children))
    assert process.wait(60) in (3, 125)  # psql's own, or found out too late
    assert stage.db.execute("select total from public.invoice") == [(-1,)]
