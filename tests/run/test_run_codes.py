"""Every way to end has its own exit code: the command's, as a shell says it, or one of pyfence's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.command import CommandLine
from guards.scene import acquire, supersede
from harness import Database, sqlstate
from pools.pgbouncer import PROGRAM, PgBouncer
from run.runner import RESOURCE, Runner, job, shell

from pyfence.cli._exit_codes import RUN_EXPLAINED, RunCode

WRITE = "update public.report set body = 'new' where id = 1 returning body"


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_the_commands_own(run: Runner, code: int) -> None:
    assert run(command=shell(f"exit {code}"), code=code).err == ""
    assert run.state == "closed: released"


def test_a_signal_and_what_cannot_be_run(run: Runner, tmp_path: Path) -> None:
    run(command=shell("kill -9 $$"), code=128 + 9)
    plain, strange, lost = tmp_path / "plain", tmp_path / "strange", tmp_path / "lost"
    plain.write_text("#!/bin/sh\n")
    strange.write_text("no program\n")
    strange.chmod(0o755)
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    history = "select count(*) from fence.history where event = 'granted'"
    before = run.db.execute(history)
    assert "cannot be executed" in run(command=[str(plain)], code=126).err
    assert "not found" in run(command=["no-such-program"], code=127).err
    assert run.db.execute(history) == before, "these are found out before a lease is taken"
    assert "no #! line" in run(command=[str(strange)], code=126).err
    assert run(command=[str(lost)], code=127).out == ""


def test_busy_and_waited_in_vain(run: Runner) -> None:
    acquire(run.db, RESOURCE, "1 hour")
    busy = run(command=["true"], code=RunCode.BUSY)
    assert ("'tester'" in busy.err, busy.out) == (True, "")
    assert run("--wait", "0.2", command=["true"], code=RunCode.WAITED).out == ""
    assert run("--json", command=["true"], code=RunCode.BUSY).error["code"] == "LF012"


def test_once(run: Runner, tmp_path: Path) -> None:
    """What has succeeded is not done again; what has failed, or belongs to another resource or key, is."""
    count = tmp_path / "count"
    add = f"echo x >> {count}; "
    run("--once", "2026-11-30", command=shell(add + "exit 3"), code=3)
    run("--once", "2026-11-30", command=shell(add))
    done = run("--once", "2026-11-30", command=shell(add), code=RunCode.DONE_BEFORE)
    assert "'2026-11-30'" in done.err
    run("--once", "2026-11-30", "--resource", "other", command=shell(add))
    run("--once", "2026-12-01", command=shell(add))
    assert count.read_text() == "x\n" * 4
    events = run.db.execute("select detail ->> 'run' from fence.history where event = 'finished' order by id")
    assert events == [("2026-11-30",), ("2026-11-30",), ("2026-12-01",)]
    assert run.state == "closed: released"


def test_only_the_holder_records_a_run(run: Runner) -> None:
    lease = acquire(run.db, RESOURCE)
    record = "select fence._finished(%s, %s, %s, %s, true)"
    with sqlstate("LF006"):
        run.db.execute(record, (lease.resource, lease.token, "x", "k"), user="app")
    for key in ("", None, "x" * 1025):
        with sqlstate("LF010"):
            run.db.execute(record, (*lease.parameters, key), user="app")
    supersede(run.db, lease)
    with sqlstate("LF001"):
        run.db.execute(record, (*lease.parameters, "k"), user="app")
    assert run.db.execute("select count(*) from fence.history where event = 'finished'") == [(0,)]


def test_refused(run: Runner, empty_db: Database) -> None:
    assert run("--json", "--resource", "job:{id}", command=["true"], code=RunCode.REFUSED).error["code"] == "LF010"
    outsider = Runner(run.db, "outsider")
    assert outsider("--json", command=["true"], code=RunCode.REFUSED).error["code"] == "42501"
    assert "pyfence migrate up" in Runner(empty_db)(command=["true"], code=RunCode.REFUSED).err


def test_unreachable(run: Runner) -> None:
    nowhere = ("--database-url", "postgresql://u@127.0.0.1:1/x")
    assert run("--json", *nowhere, command=["true"], code=RunCode.UNREACHABLE).error["code"] == "08001"


def test_usage(db: Database) -> None:
    cli = CommandLine(db.url("app"))
    for wrong in (
        ("--ttl", "0.5"),
        ("--ttl", "x"),
        ("--ttl", "10", "--grace", "6"),
        ("--wait", "-1"),
        ("--no-such-option",),
        ("--database-url", "postgresql://u:p@h:x/y"),
        ("--shell", "--", "true", "more"),
    ):
        assert cli("run", "--resource", RESOURCE, *wrong, "true", code=RunCode.USAGE).out == ""
    assert cli("run", "--json", "--resource", RESOURCE, "--ttl", "0.5", "true", code=122).error["code"] == "usage"
    cli("run", "--resource", RESOURCE, code=RunCode.USAGE)
    cli("run", "true", code=RunCode.USAGE)


def test_options_after_the_command_are_the_commands(run: Runner) -> None:
    assert run(command=["echo", "--json", "--ttl", "x"]).out == "--json --ttl x\n"


def test_the_codes_are_distinct_and_documented() -> None:
    documented = {int(code) for code in re.findall(r"^  (\d+) ", RUN_EXPLAINED, re.MULTILINE)}
    assert documented == {int(code) for code in RunCode}
    assert len(documented) == len(RunCode)


@pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer: poolers that refuse or drop start-up options were not tried")
@pytest.mark.parametrize("dropped", [False, True], ids=["refused", "dropped"])
def test_a_pooler_is_named_before_the_command_starts(run: Runner, tmp_path: Path, dropped: bool) -> None:
    more = "ignore_startup_parameters = options" if dropped else ""
    with PgBouncer(run.db.cluster.server.settings["port"], more=more) as bouncer:
        mark = tmp_path / "mark"
        pooled = ("--database-url", bouncer.url(run.db.url("app")))
        done = run("--json", *pooled, command=["touch", str(mark)], code=RunCode.REFUSED)
        assert done.error["code"] == "pooler"
        assert ("drops" if dropped else "refuses") in done.error["message"]
        assert "fence.enter" in done.error["hint"]
        assert not mark.exists()
        assert run.db.execute("select count(*) from fence.leases") == [(0,)]
        # What the check is for: the claim does not get through, and the write is refused, not lost.
        through = {"PGHOST": "127.0.0.1", "PGPORT": str(bouncer.port)}
        assert run(command=job(WRITE), env={**through, "PYFENCE_DATABASE_URL": run.db.url("app")}, code=9).out == (
            "LF004\n" if dropped else "None\n"
        )
