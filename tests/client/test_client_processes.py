"""Forks, exits and signals: a lease belongs to one process, and no process hangs because of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import psycopg
import pytest
from client.support import backends, body
from harness import Database, wait_until

import pyfence


def script(db: Database, text: str) -> list[str]:
    start = f"import atexit, os, sys, threading, time, pyfence\nfence = pyfence.Fence({db.url('app')!r})\n"
    return [sys.executable, "-c", start + textwrap.dedent(text)]


def run(db: Database, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(db, text), capture_output=True, text=True, timeout=20, check=False)


def in_child(work: Any) -> int:
    """The exit code of a forked child that runs `work`: 0 if it gives True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() is True else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_child_starts_afresh_and_leaves_its_parent_alone(db: Database, report: str) -> None:
    with pyfence.Fence(db.url("app")) as fence, fence.lease("report:1", ttl=1) as lease:
        lease.fenced_update(report, {"id": 1}, {"body": "parent"})

        def work() -> bool:
            with pytest.raises(pyfence.LeaseHeld):
                fence.acquire("report:1")
            with fence.lease("report:2", ttl=0.6) as own:
                assert not own.lost.wait(1)
                assert own.fenced_update(report, {"id": 2}, {"body": "child"}) == 1
            for use in (lease.renew, lambda: fence.transaction(lease), lambda: pyfence.present(None, lease)):
                with pytest.raises(pyfence.LeaseLost) as caught:
                    use()
                assert caught.value.reason == "forked"
            fence.close()
            return True

        assert in_child(work) == 0
        assert not lease.lost.wait(0.5)
        assert lease.fenced_update(report, {"id": 1}, {"body": "still"}) == 1
    assert (body(db), body(db, 2)) == ("still", "child")


def test_a_child_that_leaves_the_block_does_not_release(db: Database, report: str) -> None:
    with pyfence.Fence(db.url("app")) as fence, fence.lease("report:1", ttl=5) as lease:

        def work() -> bool:
            block = fence.lease("report:3", ttl=5)
            block.__enter__()
            return True

        with fence.lease("report:2", ttl=5) as other:
            pid = os.fork()
            if pid == 0:
                try:
                    fence._leave(other)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            assert other.fenced_update(report, {"id": 2}, {"body": "mine"}) == 1
        assert in_child(work) == 0
        assert lease.fenced_update(report, {"id": 1}, {"body": "mine"}) == 1


def test_the_interpreter_ends_with_a_renewing_thread(db: Database) -> None:
    start = time.monotonic()
    done = run(db, "block = fence.lease('report:1', ttl=0.6); lease = block.__enter__(); time.sleep(0.5); print('end')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert time.monotonic() - start < 10
    with pyfence.Fence(db.url("app")) as fence:
        assert fence.acquire("report:1", wait=5).release()


def test_release_at_exit(db: Database) -> None:
    done = run(db, "lease = fence.acquire('report:1'); atexit.register(lambda: print(lease.release()))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_an_exception_gives_the_lease_back(db: Database) -> None:
    done = run(db, "with fence.lease('report:1', ttl=60): sys.exit(3)")
    assert (done.returncode, done.stderr) == (3, "")
    with pyfence.Fence(db.url("app")) as fence:
        assert fence.acquire("report:1").release()


def test_an_interrupt_gives_the_lease_back(db: Database) -> None:
    text = "with fence.lease('report:1', ttl=60): print('in', flush=True); time.sleep(30)"
    with subprocess.Popen(script(db, text), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGINT)
        process.wait(10)
    with pyfence.Fence(db.url("app")) as fence:
        assert fence.acquire("report:1").release()


def test_a_frozen_process_wakes_up_without_its_lease(db: Database, report: str) -> None:
    """The story this is all about: a pause longer than the ttl, a successor, and a write that comes too late."""
    text = """
        lost = []
        lease = fence.acquire("report:1", ttl=0.7)
        print(lease.token, flush=True)
        sys.stdin.readline()
        try:
            lease.fenced_update("public.report", {"id": 1}, {"body": "old"})
        except pyfence.StaleToken as exc:
            print("refused", lease.lost.wait(5), flush=True)
    """
    with (
        subprocess.Popen(script(db, text), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        pyfence.Fence(db.url("app")) as fence,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        token = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        with fence.lease("report:1", wait=10) as lease:
            assert lease.token > token
            assert lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
            process.stdin.write("go\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == "refused True\n"
    assert body(db) == "new"


def test_a_killed_process_leaves_nothing_but_its_ttl(db: Database, report: str) -> None:
    text = """
        with fence.lease("report:1", ttl=1) as lease, lease.transaction() as conn:
            conn.execute("update public.report set body = 'half' where id = 1")
            print("in", flush=True)
            conn.execute("select pg_sleep(30)")
    """
    with subprocess.Popen(script(db, text), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        asleep = "select from pg_stat_activity where datname = %s and wait_event = 'PgSleep'"
        wait_until(
            lambda: bool(db.cluster.admin.execute(asleep, (db.name,)).fetchall()), "it sleeps in its transaction"
        )
        process.kill()
        process.wait(10)
    with psycopg.connect(db.url("app"), autocommit=True), pyfence.Fence(db.url("app")) as fence:
        for pid, _ in backends(db):  # the server does not look at the socket while it sleeps
            db.cluster.admin.execute("select pg_cancel_backend(%s)", (pid,))
        with fence.lease("report:1", wait=10) as lease:
            assert lease.fenced_update(report, {"id": 1}, {"body": "whole"}) == 1
    wait_until(lambda: not backends(db), "nothing is left open")
    assert body(db) == "whole"


def test_a_release_while_the_interpreter_ends_does_not_hang(db: Database) -> None:
    text = """
        class Owner:
            def __init__(self): self.lease = fence.acquire("report:1")
            def __del__(self):
                try: self.lease.release()
                except Exception as exc: print(type(exc).__name__)
        sys.modules["__main__"].keep = [Owner()]
        sys.modules["__main__"].keep.append(sys.modules["__main__"].keep)  # freed when the interpreter ends
    """
    done = run(db, text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "OperationalError\n", "")
