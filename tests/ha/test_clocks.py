"""Servers whose clock is wrong, or is set while they run. The clock is faked for them alone (libfaketime)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ha.nodes import Destination, Node, Stage, Tokens
from ha.test_failover import cut
from harness import sqlstate, wait_until

pytestmark = pytest.mark.ha

HOUR = 3_600_000_000


@pytest.fixture
def fake(stage: Stage) -> Path:
    """The library, where the server's account can read it."""
    spec = importlib.util.find_spec("libfaketime")
    found = [] if spec is None or spec.origin is None else list(Path(spec.origin).parent.rglob("libfaketime.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed: nothing about wrong clocks is shown")
    copy = stage.workspace.path / "libfaketime.so.1"
    shutil.copy(found[0], copy)
    stage.own(copy)
    return copy


def set_clock(node: Node, fake: Path, offset: str) -> None:
    """From the next start on, or at once where the node runs with a set clock already."""
    clock = node.stage.workspace.path / f"{node.name}.clock"
    clock.write_text(f"{offset}\n")
    clock.chmod(0o644)
    node.environment = {
        "LD_PRELOAD": str(fake),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def clock(node: Node) -> int:
    ((now,),) = node.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    return int(now)


def test_a_promoted_standby_an_hour_behind_waits_for_a_floor(stage: Stage, primary: Node, fake: Path) -> None:
    standby = primary.standby("standby")
    tokens = Tokens(before=primary.tokens())
    holder = primary.supersede()
    tokens.before.append(holder.token)
    set_clock(standby, fake, "-1h")
    cut(primary, standby)
    tokens.old = primary.tokens()
    standby.promote()
    assert clock(standby) < clock(primary) - HOUR / 2
    standby.refuses(holder, "LF001")
    with sqlstate("LF009"):
        standby.acquire("report:2")
    assert standby.authority() == "quarantined"
    destination = Destination()
    for token in [*tokens.before, *tokens.old]:
        destination.write(token)
    standby.execute("select fence.confirm_lineage(%s)", (destination.highest + 1,))
    tokens.new = standby.tokens()
    tokens.judge()


def test_a_server_restarted_an_hour_behind_grants_nothing(primary: Node, fake: Path) -> None:
    tokens = Tokens(before=primary.tokens())
    primary.stop()
    set_clock(primary, fake, "-1h")
    primary.start()
    with sqlstate("LF009") as refused:
        primary.acquire("report:2")
    primary.stop()
    primary.environment = {}
    primary.start()  # the clock is right again, and that was all
    tokens.new = primary.tokens()
    tokens.judge()
    assert "clock" in refused.diag.message_detail


def test_a_day_ahead_and_right_again(primary: Node, fake: Path) -> None:
    """What was granted by the wrong clock stays below what follows; the right clock needs a floor first."""
    primary.stop()
    set_clock(primary, fake, "+24h")
    primary.start()
    primary.execute("select fence.confirm_lineage()")
    tokens = Tokens(before=primary.tokens())
    assert tokens.before[0] > clock(primary) - HOUR
    primary.stop()
    primary.environment = {}
    primary.start()
    with sqlstate("LF009") as refused:
        primary.acquire("report:2")
    (floor,) = [
        int(word) for word in refused.diag.message_hint.replace("(", " ").replace(")", " ").split() if word.isdigit()
    ]
    primary.execute("select fence.confirm_lineage(%s)", (floor,))
    tokens.new = primary.tokens()
    tokens.judge()


def test_a_clock_that_steps_back_under_a_running_server(primary: Node, fake: Path) -> None:
    primary.stop()
    set_clock(primary, fake, "+0")
    primary.start()
    tokens = Tokens(before=primary.tokens())
    before = clock(primary)
    set_clock(primary, fake, "-1h")
    wait_until(lambda: clock(primary) < before - HOUR / 2, "the clock has been set")
    tokens.new = primary.tokens(5)
    tokens.judge()
    assert tokens.new == list(range(tokens.before[-1] + 1, tokens.before[-1] + 6))
    findings = primary.execute("select severity, code from fence.audit() where object = 'fence._authority'")
    assert findings == [("warning", "clock-behind")]
    # an expiry that the old clock wrote lies an hour ahead: nobody is let in early
    holder = primary.supersede()
    ((granted, reason),) = primary.execute("select granted, reason from fence.acquire(%s)", (holder.resource,))
    assert (granted, reason) == (False, "held")


def test_a_clock_that_steps_ahead_ends_leases_and_nothing_else(primary: Node, fake: Path) -> None:
    """The holder is refused, and the next one is granted a higher token."""
    primary.stop()
    set_clock(primary, fake, "+0")
    primary.start()
    holder = primary.supersede()
    before = clock(primary)
    set_clock(primary, fake, "+2h")
    wait_until(lambda: clock(primary) > before + HOUR, "the clock has been set")
    primary.refuses(holder, "LF002")
    newer = primary.acquire(holder.resource)
    assert newer.token > holder.token
    primary.refuses(holder, "LF001")
    primary.write(newer)


@pytest.mark.parametrize("change", ["2027-03-14 07:00", "2027-11-07 06:00"], ids=["forward", "back"])
def test_the_moment_at_which_clocks_change(primary: Node, fake: Path, change: str) -> None:
    """New York changes its clocks while a lease is held: it lasts what was asked for, in every session."""

    def seconds_to_change() -> float:
        return (datetime.fromisoformat(f"{change}:00+00:00") - datetime.now(UTC)).total_seconds()

    primary.stop()
    set_clock(primary, fake, f"+{seconds_to_change() - 60:.0f}s")
    primary.start()
    primary.execute("select fence.confirm_lineage()")
    left = "extract(epoch from {} - clock_timestamp())"
    with primary.connect("app") as york, primary.connect("app") as berlin:
        york.execute("set timezone = 'America/New_York'")
        berlin.execute("set timezone = 'Europe/Berlin'")
        ((zone,),) = york.execute("select to_char(clock_timestamp(), 'TZ')").fetchall()
        set_clock(primary, fake, f"+{seconds_to_change() - 5:.0f}s")
        ((token, secret, length),) = york.execute(
            f"select token, secret, {left.format('expires_at')} from fence.acquire('report:dst', '60 s') where granted"
        ).fetchall()
        assert 55 < length <= 60
        set_clock(primary, fake, f"+{seconds_to_change() + 5:.0f}s")
        wait_until(
            lambda: york.execute("select to_char(clock_timestamp(), 'TZ') <> %s", (zone,)).fetchall() == [(True,)],
            "New York has changed its clocks",
        )
        ((granted, retry),) = berlin.execute("select granted, retry_in from fence.acquire('report:dst')").fetchall()
        assert not granted
        assert 30 < retry.total_seconds() <= 55
        for session in (berlin, york):
            ((length,),) = session.execute(
                f"select {left.format('fence.renew(%s, %s, %s, %s::interval)')}", ("report:dst", token, secret, "1 day")
            ).fetchall()
            assert 86395 < length <= 86400


def test_clients_whose_clocks_are_wrong_exclude_each_other(primary: Node, fake: Path) -> None:
    """Ten minutes ahead and ten behind: whether and how long a lease is held is the server's to say."""
    program = (
        "import sys, pyfence, time\n"
        "with pyfence.Fence(sys.argv[1]) as fence:\n"
        "    try: lease = fence.acquire('report:skew', ttl=30)\n"
        "    except pyfence.LeaseHeld as held: print('held', held.retry_in.total_seconds(), time.time())\n"
        "    else: print('granted', lease.token, time.time(), lease.lost.is_set())\n"
    )
    answers = []
    for offset in ("+600s", "-600s"):
        environment = {**os.environ, "LD_PRELOAD": str(fake), "FAKETIME": offset}
        run = subprocess.run(
            [sys.executable, "-c", program, primary.url("app")], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        answers.append(run.stdout.split())
    assert answers[0][0] == "granted"
    assert answers[0][3] == "False"
    assert answers[1][0] == "held"
    assert 20 < float(answers[1][1]) <= 30
    assert float(answers[0][2]) - float(answers[1][2]) > 1000, "their clocks are wrong"
