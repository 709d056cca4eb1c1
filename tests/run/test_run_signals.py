"""Signals reach the command, and the lease outlives it: in every order in which wrapper and command can end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cli.command import Done, checked
from guards.scene import acquire, expire
from harness import Database, wait_until
from proxy import Proxy
from psycopg.conninfo import make_conninfo
from run.runner import (
    RESOURCE,
    Runner,
    children,
    is_alive,
    is_stopped,
    job,
    shell,
    wait_until_gone,
)

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH")
#: Prints its pid and waits until it is ended.
WAITS = "echo $$; while :; do sleep 0.02; done"
#: The same, and can be stopped at any moment: a shell that waits for a vfork of its own to end cannot.
STANDS = "sleep 60 & echo $$; while :; do wait; done"


def number_of(name: str) -> signal.Signals:
    return signal.Signals[f"SIG{name}"]


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_goes_on_to_the_command_and_the_lease_stays_until_it_is_gone(
    run: Runner, tmp_path: Path, name: str
) -> None:
    end = tmp_path / "end"
    handler = f"echo got; while ! test -e {end}; do sleep 0.02; done; exit 7"
    with run.start(command=shell(f"trap '{handler}' {name}; {WAITS}")) as started:
        started.signal(number_of(name))
        assert started.out.readline() == "got\n"
        assert run.state == "held"
        end.touch()
        started.ended(7)
    assert run.state == "closed: released"


@pytest.mark.parametrize("name", ["INT", "USR1"])
def test_a_command_that_a_signal_ends(run: Runner, name: str) -> None:
    with run.start(command=["sh", "-c", "echo $$; exec sleep 30"]) as started:
        started.signal(number_of(name))
        started.ended(128 + number_of(name))
    assert run.state == "closed: released"


def test_a_signal_that_was_ignored_stays_ignored(run: Runner) -> None:
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with run.start(command=["sh", "-c", "echo $$; exec sleep 30"], **ignore) as started:
        started.signal(signal.SIGHUP)
        os.kill(started.child, signal.SIGHUP)
        started.signal(signal.SIGTERM)
        started.ended(128 + signal.SIGTERM)


def test_stop_and_continue(run: Runner) -> None:
    with run.start(command=shell(f"trap 'echo got' USR1; {STANDS}")) as started:
        wrapper = started.process.pid
        started.signal(signal.SIGTSTP)
        wait_until(lambda: is_stopped(started.child) and is_stopped(wrapper), "both have stopped")
        started.signal(signal.SIGCONT)
        wait_until(lambda: not is_stopped(started.child) and not is_stopped(wrapper), "both go on")
        started.signal(signal.SIGUSR1)
        assert started.out.readline() == "got\n"
        started.signal(signal.SIGTERM)
        started.ended(128 + signal.SIGTERM)


@pytest.mark.parametrize("name", ["TSTP", "STOP"])
def test_what_was_stopped_longer_than_its_lease_is_not_continued(run: Runner, tmp_path: Path, name: str) -> None:
    """With SIGTSTP the command stands still and is killed so. With SIGSTOP nobody can stop it: the database does."""
    mark = tmp_path / "mark"
    with run.start("--ttl", "5", "--grace", "0.5", command=shell(f"trap 'touch {mark}' TERM; {STANDS}")) as started:
        started.signal(number_of(name))
        wait_until(lambda: is_stopped(started.process.pid), "the wrapper has stopped")
        with run.db.connect("app", autocommit=True) as conn:
            statement = "select granted from fence.acquire(%s)"
            wait_until(lambda: conn.execute(statement, (RESOURCE,)).fetchall() == [(True,)], "somebody else has it")
        assert is_stopped(started.child) == (name == "TSTP")
        started.signal(signal.SIGCONT)
        assert "was not renewed within its ttl" in started.ended(125).err
        assert not is_alive(started.child)
        assert not mark.exists()


def test_a_frozen_wrapper_leaves_the_command_to_the_database(run: Runner, tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = f'echo $$; while ! test -e {go}; do sleep 0.02; done; exec "$@"'
    command = ["sh", "-c", late, "sh", *job("update public.report set body = 'late'")]
    with run.start("--ttl", "6", "--grace", "0.5", command=command) as started:
        started.signal(signal.SIGSTOP)
        expire(run.db, RESOURCE)
        acquire(run.db, RESOURCE)
        go.touch()
        assert started.out.readline() == "LF001\n"
        started.signal(signal.SIGCONT)
        started.ended(125)
    assert run.db.execute("select body from public.report") == [("old",)]


def test_a_wrapper_that_is_killed_takes_the_whole_group_along(run: Runner) -> None:
    with run.start("--ttl", "60", command=shell("sleep 60 & echo $$; wait")) as started:
        (background,) = children(started.child)
        helpers = [pid for pid in children(started.process.pid) if pid != started.child]
        started.signal(signal.SIGKILL)
        started.ended(-signal.SIGKILL)
        wait_until_gone(started.child, background, *helpers)
    assert run.state == "held"  # until its ttl is over


def test_where_nobody_is_left_to_kill_the_command_the_database_refuses_it(run: Runner, tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = f'echo $$; while ! test -e {go}; do sleep 0.02; done; exec "$@"'
    command = ["sh", "-c", late, "sh", *job("update public.report set body = 'late'")]
    with run.start("--ttl", "60", command=command) as started:
        for pid in children(started.process.pid):
            if pid != started.child:
                os.kill(pid, signal.SIGKILL)
        started.signal(signal.SIGKILL)
        started.process.wait(30)
        assert is_alive(started.child)
        expire(run.db, RESOURCE)
        go.touch()
        assert started.out.readline() == "LF002\n"
    acquire(run.db, RESOURCE)
    assert run.db.execute("select body from public.report") == [("old",)]


def test_a_revoked_lease_ends_the_group_by_term_and_then_by_kill(run: Runner, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    stubborn = f"trap 'touch {mark}' TERM; (trap '' TERM; {WAITS.partition('; ')[2]}) & echo $$; while :; do wait; done"
    with run.start("--ttl", "6", "--grace", "0.5", command=shell(stubborn)) as started:
        (background,) = children(started.child)
        run.db.execute("select fence.revoke(%s, 'test')", (RESOURCE,))
        done = started.ended(125)
        assert "superseded or revoked" in done.err
        assert mark.exists()
        assert not is_alive(started.child)
        assert not is_alive(background)


def test_a_command_that_ends_well_after_the_lease_was_lost_is_no_success(run: Runner) -> None:
    with run.start(command=shell("trap 'exit 0' TERM; echo $$; while :; do sleep 0.02; done")) as started:
        run.db.execute("select fence.revoke(%s, 'test')", (RESOURCE,))
        started.signal(signal.SIGTERM)
        assert "superseded or revoked" in started.ended(125).err


def test_without_an_answer_the_command_is_ended_before_its_lease_is_over(
    run: Runner, db: Database, proxy: Proxy, tmp_path: Path
) -> None:
    """It notes the time for as long as it lives, by the clock that the server has, too."""
    times = tmp_path / "times"
    url = make_conninfo(proxy.url(db.url("app")))
    options = ("--database-url", url, "--ttl", "4", "--grace", "0.5")
    notes = f"trap '' TERM; echo $$; while :; do date +%s.%N >> {times}; sleep 0.02; done"
    with run.start(*options, command=shell(notes)) as started:
        proxy.requests.hold()
        assert "ending the command" in started.ended(125).err
    ((expiry,),) = db.execute("select extract(epoch from expires_at) from fence._lease", user="fence_owner")
    last = float(times.read_text().splitlines()[-1])
    assert 0 < float(expiry) - last < 2


def test_a_signal_while_it_waits_for_the_lease_starts_nothing(run: Runner, tmp_path: Path) -> None:
    """And one that was ignored from the start ends no wait."""
    acquire(run.db, RESOURCE, "1 hour")
    mark = tmp_path / "mark"
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    for names in (("INT",), ("HUP", "TERM")):
        waiting = run.popen("--wait", "forever", command=["touch", str(mark)], **(ignore if "HUP" in names else {}))
        wait_until(run.asks, "it asks for the lease")
        for name in names:
            waiting.send_signal(number_of(name))
        checked(Done(waiting.wait(30), *waiting.communicate()), 128 + number_of(names[-1]))
        wait_until(lambda: not run.asks(), "its connection is gone")
    assert not mark.exists()
