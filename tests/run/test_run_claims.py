"""What a command gets: the claim, its own streams, nothing else; and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Database, sqlstate, wait_until
from run.runner import RESOURCE, Runner, job, shell, wait_until_gone

import pyfence

WRITE = "update public.report set body = 'new' where id = 1 returning body"


def test_a_job_that_knows_nothing_writes_under_the_lease(run: Runner) -> None:
    assert (
        "LF004"
        in subprocess.run(
            job(WRITE), env={**os.environ, **run.variables}, capture_output=True, text=True, timeout=30
        ).stdout
    )
    done = run(command=job(WRITE, "select state from pg_stat_activity where pid = pg_backend_pid()"))
    assert (done.out, done.err) == ("new\nactive\n", "")
    assert run.state == "closed: released"
    ((owner,),) = run.db.execute("select owner from fence.leases")
    assert owner.endswith(f" {os.path.basename(sys.executable)}")


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql: a psql script under the lease was not tried")
def test_a_psql_script_from_stdin(run: Runner) -> None:
    script = f"\\set ON_ERROR_STOP on\nbegin;\n{WRITE.replace('new', 'first')};\ncommit;\n{WRITE};\n"
    done = run(command=["psql", "-XqAt"], input=script, stdin=None)
    assert done.out == "first\nnew\n"
    assert run.db.execute("select body from public.report") == [("new",)]


def test_variables(run: Runner) -> None:
    show = "select current_setting('work_mem'), current_setting('application_name')"
    options = "-c work_mem=1234kB -c application_name=a\\ b"
    done = run(command=job(show, WRITE), env={"PGOPTIONS": options})
    assert done.out == "1234kB a b\nnew\n"
    ((token,),) = run.db.execute("select token from fence.leases")
    done = run(command=shell('echo "$PYFENCE_RESOURCE $PYFENCE_TOKEN"; env | grep -c "$PYFENCE_TOKEN"'))
    ((later,),) = run.db.execute("select token from fence.leases")
    assert done.out == f"{RESOURCE} {later}\n2\n"
    assert later > token


def test_a_run_within_a_run_holds_both(run: Runner, db: Database) -> None:
    db.execute("create table public.other (id int)")
    db.execute("select fence.protect('public.other', 'other')")
    inner = [sys.executable, "-m", "pyfence.cli", "run", "--resource", "other", "--"]
    inner[:3] = [str(Path(sys.executable).with_name("pyfence"))]
    done = run(command=[*inner, *job(WRITE, "insert into public.other values (1) returning id")])
    assert done.out == "new\n1\n"


def test_environ_and_options_of_a_lease(run: Runner, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1234kB")
    db.execute("create table public.other (id int)")
    db.execute("select fence.protect('public.other', 'täble ✓')")
    with pyfence.Fence(db.url("app")) as fence, fence.lease(RESOURCE) as lease, fence.lease("täble ✓") as other:
        secret = lease.claim.secret
        options, variables = lease.libpq_options(other), lease.environ(other)
        assert secret in options
        assert secret not in f"{options!r} {variables!r} { ({**os.environ, **variables})!r}"
        assert (variables["PYFENCE_RESOURCE"], variables["PYFENCE_TOKEN"]) == (RESOURCE, str(lease.token))
        both = [WRITE, "insert into public.other values (1) returning id", "show work_mem"]
        done = subprocess.run(
            job(*both), env={**os.environ, **run.variables, **variables}, capture_output=True, text=True, timeout=30
        )
        assert done.stdout == "new\n1\n1234kB\n"
        with db.connect("app", autocommit=True, options=options) as conn:
            conn.execute(WRITE)
            conn.execute("insert into public.other values (2)")
        numbered = lease.libpq_options(other.claim.with_sequence(5))
        assert numbered.endswith(f"{other.claim.secret}:5")
    for call in (lease.environ, lease.libpq_options):
        with pytest.raises(pyfence.LeaseLost) as lost:
            call()
        assert lost.value.reason == "released"
    with sqlstate("LF001"), db.connect("app", autocommit=True, options=options) as conn:
        conn.execute(WRITE)


def test_environ_of_an_async_lease(run: Runner, db: Database) -> None:
    async def work() -> str:
        async with pyfence.AsyncFence(db.url("app")) as fence, fence.lease(RESOURCE) as lease:
            with db.connect("app", autocommit=True, options=lease.libpq_options()) as conn:
                conn.execute(WRITE)
            return lease.environ()["PYFENCE_TOKEN"]

    token = asyncio.run(work())
    assert db.execute("select token::text, state from fence.leases") == [(token, "closed")]


def test_the_command_inherits_the_three_streams_and_nothing_else(run: Runner) -> None:
    with open(os.devnull) as extra:
        list_them = [sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"]
        done = run(command=list_them, pass_fds=(extra.fileno(),))
    assert done.out == "[0, 1, 2]\n"


def test_the_shell(run: Runner) -> None:
    assert run("--shell", command=["echo one; echo two | tr o 0; exit 5"], code=5).out == "one\ntw0\n"
    assert "--shell" in run(command=["echo one"], code=127).err


def test_it_waits_for_the_whole_group_and_holds_the_lease_so_long(run: Runner, tmp_path: Path) -> None:
    end = tmp_path / "end"
    background = f"(while ! test -e {end}; do sleep 0.02; done; echo late) & echo $$; exit 3"
    with run.start("--ttl", "6", "--grace", "0.5", command=shell(background)) as started:
        wait_until_gone(started.child)
        with run.db.connect("app", autocommit=True) as conn:
            ((expiry,),) = conn.execute("select expires_at from fence.acquire(%s)", (RESOURCE,)).fetchall()
            wait_until(
                lambda: conn.execute("select expires_at from fence.acquire(%s)", (RESOURCE,)).fetchall()[0][0] > expiry,
                "the lease is renewed",
            )
        end.touch()
        assert started.ended(3).out == "late\n"
    assert run.state == "closed: released"


def test_a_process_that_leaves_the_group_has_neither_the_lease_nor_a_socket(run: Runner, tmp_path: Path) -> None:
    """Not waited for. What it holds of the lease is worth nothing afterwards, and keeps nobody out."""
    go, result = tmp_path / "go", tmp_path / "result"
    code = f"""
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
for number in (0, 1, 2):
    os.dup2(os.open(os.devnull, os.O_RDWR), number)
os.closerange(3, 9)
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
open({str(result)!r} + ".fds", "w").write(str(sorted(os.readlink(f"/proc/self/fd/{{n}}") for n in (0, 1, 2))))
os.dup2(os.open({str(result)!r}, os.O_CREAT | os.O_WRONLY), 1)
os.execv(sys.executable, {job(WRITE)!r})
"""
    with run.start(command=[sys.executable, "-c", code]) as started:
        daemon = started.child
        assert {
            os.path.basename(os.readlink(f"/proc/{daemon}/fd/{n}"))[:5] for n in os.listdir(f"/proc/{daemon}/fd")
        } <= {
            "null",
            "pipe:",
        }
        started.ended(0)
        assert run.state == "closed: released"
        assert run(command=job(WRITE.replace("new", "second"))).out == "second\n"
        go.touch()
        wait_until(lambda: result.exists() and result.read_text() != "", "the daemon has tried to write")
        assert result.read_text() == "LF001\n"
    assert run.db.execute("select body from public.report") == [("second",)]
