"""`pyfence status`: what one look tells beside leases and tables, and looking again and again."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from cli.command import PROGRAM, CommandLine
from harness import Database, wait_until

import pyfence
from pyfence.cli._look import bar


def test_refusals_of_the_last_hour_are_counted_and_older_ones_are_not(
    cli: CommandLine, db: Database, report: str
) -> None:
    cli("protect", report, "report:{id}", "--mode", "observe")
    for _ in range(3):
        db.execute("update public.report set body = 'x'", user="outsider")
    (row,) = cli("status", "--json").json["violations_last_hour"]
    assert (row["protected_table"], row["code"], row["count"], row["roles"]) == (report, "LF004", 3, 1)
    assert ["public.report", "LF004", "3", "1"] in [line.split()[:4] for line in cli("status").out.splitlines()]
    ((counted,),) = db.execute("select value from fence.metrics where metric = 'violations_last_hour'")
    assert counted == 3
    db.execute("update fence._violation set at = at - interval '61 minutes'", user="fence_owner")
    assert cli("status", "--json").json["violations_last_hour"] == []
    assert "let pass in the last hour: nothing" in cli("status").out


def test_coverage_counts_the_tables_beside_the_protected_ones(cli: CommandLine, db: Database, report: str) -> None:
    db.execute("create table public.other (id int) partition by range (id)")
    db.execute("create table public.other_1 partition of public.other for values from (1) to (9)")
    db.execute("create schema elsewhere; create table elsewhere.unseen ()", user="fence_owner")
    cli("protect", report, "report:{id}")
    coverage = {"schema_name": "public", "tables": 2, "enforced": 1, "observed": 0, "not_armed": 0, "unprotected": 1}
    assert cli("status", "--json").json["coverage"] == [coverage]
    db.execute("alter table public.report disable trigger user")
    status = cli("status", "--json").json
    assert status["coverage"] == [{**coverage, "not_armed": 1}]
    assert status["doctor"]["counts"]["error"] > 0
    out = cli("status").out
    assert "doctor: error: " in out
    assert "  public.report [" in out
    assert cli("status", "--no-doctor", "--json").json["doctor"] is None
    assert "doctor: not asked" in cli("status", "--no-doctor").out


def test_a_quarantine_is_the_first_thing_to_be_read(cli: CommandLine, db: Database) -> None:
    db.execute("select fence.set_option('lineage_policy', 'confirm', 'test')")
    db.execute("update fence._authority set database_oid = 1", user="fence_owner")
    lines = cli("status").out.splitlines()
    assert lines[1].startswith("authority: quarantined")
    assert any("pyfence confirm-lineage" in line or "fence.confirm_lineage" in line for line in lines[2:4])


@pytest.mark.parametrize(
    ("share", "shown"), [(1, 10), (0.5, 5), (0.01, 1), (0, 0), (0.96, 10)], ids=["all", "half", "a bit", "none", "most"]
)
def test_bar(share: float, shown: int) -> None:
    assert bar(share) == "█" * shown + "░" * (10 - shown)


def test_who_waits_is_counted_by_resource(cli: CommandLine, db: Database) -> None:
    for name in ("wanted", "unwanted"):
        db.execute("select fence.acquire(%s, '1 hour')", (name,), user="app")
    with pyfence.Fence(db.url("app")) as fence:
        waiting = db.in_thread(fence.acquire, "wanted", wait=60)

        def counted() -> bool:
            leases = cli("leases", "--json").json["leases"]
            return [(lease["resource"], lease["waiting"]) for lease in leases] == [("unwanted", 0), ("wanted", 1)]

        wait_until(counted, "the waiter is counted")
        assert ["wanted", "held"] in [line.split()[:2] for line in cli("status").out.splitlines()]
        cli("revoke", "wanted", "--reason", "test")
        waiting.result(timeout=60)
    assert {lease["waiting"] for lease in cli("leases", "--json").json["leases"]} == {0}


# -- watching ---------------------------------------------------------------------------------------------------------


@contextmanager
def watching(cli: CommandLine, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """`pyfence status --watch`, ended at the end whatever happens."""
    env = {**os.environ, "PYFENCE_DATABASE_URL": str(cli.url), "LC_ALL": "C.UTF-8", "TERM": "xterm", "COLUMNS": "150"}
    command = [PROGRAM, "status", "--watch", "--every", "0.05", *arguments]
    process = subprocess.Popen(
        command, env={**env, "LINES": "14"}, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_watch_in_json_is_a_document_a_line_and_ends_with_an_interrupt(cli: CommandLine, db: Database) -> None:
    with watching(cli, "--json") as process:
        out: IO[bytes] = process.stdout  # type: ignore[assignment]
        assert json.loads(out.readline())["leases"] == []
        db.execute("select fence.acquire('seen', '1 hour')", user="app")
        for line in out:
            if json.loads(line)["leases"]:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")


def test_watch_outlives_a_server_that_is_away(cli: CommandLine, db: Database) -> None:
    """Two looks, none where nobody may connect, and then again."""
    with watching(cli, "--json", "--no-doctor") as process:
        out: IO[bytes] = process.stdout  # type: ignore[assignment]
        err: IO[bytes] = process.stderr  # type: ignore[assignment]
        out.readline()
        db.cluster.admin.execute(f"alter database {db.name} connection limit 0")
        assert b"no answer" in err.readline()
        db.cluster.admin.execute(f"alter database {db.name} connection limit -1")
        db.execute("select fence.acquire('back', '1 hour')", user="app")
        assert any(json.loads(line)["leases"] for line in out)


def test_watch_fails_where_looking_again_does_not_help(cli: CommandLine) -> None:
    cli("status", "never leased", "--watch", code=1)


def test_watch_draws_on_a_screen_of_its_own_and_gives_the_old_one_back(
    cli: CommandLine, db: Database, report: str
) -> None:
    cli("protect", report, "report:{id}")
    db.execute("select fence.acquire('drawn', '1 hour')", user="app")
    ours, theirs = pty.openpty()
    with watching(cli, stdout=theirs) as process:
        os.close(theirs)
        shown = b""

        def read() -> bool:
            nonlocal shown
            shown += os.read(ours, 65536)
            return shown.count(b"\x1b[H") >= 2

        wait_until(read, "two looks are drawn")
        process.send_signal(signal.SIGINT)
        with os.fdopen(ours, "rb", buffering=0) as rest:
            while True:
                try:
                    data = rest.read(65536)
                except OSError:
                    break
                if not data:
                    break
                shown += data
        assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert text.startswith("\x1b[?1049h")
    assert text.rstrip().endswith("\x1b[?1049l")
    first = text.split("\x1b[H")[1]
    assert "more lines" in first
    assert first.count("\n") == 13
    assert "drawn" in first
    assert "█" in first
