"""The demo on a server of its own: what it shows, what it leaves, and that it fails if a guard is gone."""

from __future__ import annotations

import json
import os
import shutil
import signal

import psycopg
import pytest

from pyfence import _server
from pyfence.demo._record import Record
from pyfence.demo._show import Show

from .conftest import HASTE, Runner

REFUSED_AND_ACCEPTED = [
    (1, "worker B", "report", "accepted", None),
    (1, "worker A", "report", "refused", "LF001"),
    (1, "legacy job", "report", "refused", "LF004"),
    (1, "forger", "report", "refused", "LF006"),
    (1, "worker B", "report", "accepted", None),
    (2, "worker A", "report_naive", "accepted", None),
    (2, "worker A", "report", "refused", "LF001"),
    (2, "worker B", "report", "accepted", None),
    (2, "worker B", "report_naive", "accepted", None),
    (2, "worker A", "report_naive", "refused", "P0001"),
]

#: Takes every trigger off the report table as soon as it is protected.
UNGUARD = """
import pyfence.demo._own_server as own_server
def protect_and_unguard(connection, schema, prefix, protect=own_server.protect):
    protect(connection, schema, prefix)
    table = f'{schema}.report'
    names = connection.execute(
        "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal", (table,)
    ).fetchall()
    assert names
    for (name,) in names:
        connection.execute(f'drop trigger "{name}" on {table}')
own_server.protect = protect_and_unguard
"""


def test_the_story_is_shown_and_leaves_nothing(runner: Runner) -> None:
    done = runner.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    steps = done.stdout.split("Who held which token")[0]
    for sign in ("SIGSTOP", "SIGCONT", "LF001", "LF004", "LF006", "held by worker A", "has not reached that table yet"):
        assert sign in steps
    table = done.stdout.split("Which writes were accepted")[1]
    rows = [line.split() for line in table.splitlines() if line.rstrip().endswith(" yes")]
    assert [row[-2] for row in rows] == [code or "accepted" for *_, code in REFUSED_AND_ACCEPTED]
    assert done.stdout.rstrip().endswith("outcomes are as promised.")
    assert runner.left_running() == []
    assert runner.left_folders() == []


def test_json_is_one_document(runner: Runner) -> None:
    done = runner.run(before=HASTE, json=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert document["differences"] == []
    writes = [tuple(write[key] for key in ("act", "who", "table", "outcome", "code")) for write in document["writes"]]
    assert writes == REFUSED_AND_ACCEPTED
    tokens = [held["token"] for held in document["leases"]]
    assert tokens[0] < tokens[1]
    assert tokens[2] < tokens[3]
    assert all(check["holds"] for check in document["checks"])
    times = [event["at"] for event in document["events"]]
    assert times == sorted(times)
    assert "secret" not in done.stdout


def test_it_fails_if_the_guard_is_gone(runner: Runner) -> None:
    done = runner.run(before=HASTE + UNGUARD, json=True)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert any("legacy job" in difference for difference in document["differences"])
    assert runner.left_running() == []
    assert runner.left_folders() == []


def test_a_difference_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(quiet=False)
    record = Record(tell=show.event)
    record.write("legacy job", "writes", table="report", token=None, answer={"rows": 1}, expected="LF004")
    record.write("worker B", "writes", table="report", token=1, answer={"rows": 0}, expected=None)
    record.check("all is well", False)
    show.end(record, [])
    assert not record.ok
    shown = capsys.readouterr().out
    for sign in ("promised was: LF004", "0 rows written", "NO, promised accepted", "Not as promised", "all is well"):
        assert sign in shown
    assert "as promised." not in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_a_worker_is_frozen(runner: Runner, number: signal.Signals) -> None:
    process = runner.start()
    assert process.stdout is not None
    for line in process.stdout:
        if "SIGSTOP" in line:
            break
    assert len(runner.left_folders()) == 1
    assert len(runner.left_running()) >= 6, "the demo, the server and four players"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert number.name in err
    assert runner.left_running() == []
    assert runner.left_folders() == []


def test_killed_while_a_worker_is_frozen(runner: Runner) -> None:
    """Nothing runs on: not the frozen one, nor the one that waits for its lease. The next run removes the folder."""
    if shutil.which("setpriv") is None:
        pytest.skip("without setpriv, the server of a killed demo stays up")
    process = runner.start()
    assert process.stdout is not None
    for line in process.stdout:
        if "asks for the lease: held" in line:  # and asks on, as long as nobody ends it
            break
    assert len(runner.left_running()) >= 6
    process.kill()
    process.communicate(timeout=30)
    assert runner.left_running(patience=20) == []
    assert runner.left_folders() != []
    with _server.Server(directory=runner.folder):
        assert len(runner.left_folders()) == 1, "its own"


def test_keep_leaves_a_server_and_says_how_to_stop_it(runner: Runner) -> None:
    done = runner.run(before=HASTE, keep=True, json=True)
    assert done.returncode == 0, done.stderr
    _, _, legacy_url, how_to_stop, _ = json.loads(done.stdout)["left_behind"]
    *_, command, flag, pid = how_to_stop.split()
    assert (command, flag) == ("kill", "-INT")
    try:
        with psycopg.connect(legacy_url.split()[-1], autocommit=True) as legacy:
            with pytest.raises(psycopg.DatabaseError) as refused:
                legacy.execute("update app.report set body = 'x' where id = 1")
            assert refused.value.sqlstate == "LF004"
    finally:
        os.kill(int(pid), signal.SIGINT)
    assert runner.left_running(patience=20) == []


def test_no_server_is_a_clear_error(runner: Runner) -> None:
    done = runner.run(before="import os; os.environ['PYFENCE_PG_BIN'] = '/nowhere'")
    assert done.returncode == 3
    assert "PYFENCE_PG_BIN=/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
