"""The installed program: streams, terminals, locales, help."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest
from cli.command import PROGRAM, CommandLine
from harness import Database, wait_until

from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._output import duration, printable

NAME = "Größe 表"


@pytest.fixture
def full(cli: CommandLine, db: Database, report: str) -> CommandLine:
    """A database with a protected table and a lease of a name that is not ASCII."""
    cli("protect", report, "report:{id}")
    db.execute("select fence.acquire(%s, '1 hour')", (NAME,), user="app")
    return cli


def test_streams_and_exit_codes_of_the_program(full: CommandLine) -> None:
    done = full.program("status")
    assert "public.report" in done.out
    assert done.err == ""
    assert full.program("status", "--json").json["leases"][0]["resource"] == NAME
    refused = full.program("protect", "nowhere", "x", code=1)
    assert (refused.out, "[42P01]" in refused.err) == ("", True)
    assert CommandLine("postgresql://u@127.0.0.1:1/x").program("status", code=3).out == ""


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["C", "ascii", "C without UTF-8"],
)
def test_any_locale(full: CommandLine, env: Mapping[str, str]) -> None:
    done = full.program("leases", env=env)
    assert done.err == ""
    assert NAME in done.out or NAME.encode("ascii", "backslashreplace").decode() in done.out


def test_bytes_that_are_no_text_are_a_usage_error(full: CommandLine) -> None:
    assert full.program("status", b"\xff\xfe", code=2).out == ""


def test_a_reader_that_goes_away_is_no_error_message(full: CommandLine) -> None:
    read, write = os.pipe()
    os.close(read)
    done = full.program("status", code=int(ExitCode.OUTPUT), stdout=write)
    os.close(write)
    assert done.err == ""


def test_a_full_disk_and_a_closed_stdout_are_failures(full: CommandLine) -> None:
    with Path("/dev/full").open("w") as stdout:
        done = full.program("leases", code=int(ExitCode.OUTPUT), stdout=stdout)
    assert "could not be written" in done.err
    closed = subprocess.run(
        ["sh", "-c", f"exec {PROGRAM} leases >&-"],
        env={**os.environ, "PYFENCE_DATABASE_URL": str(full.url)},
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert closed.returncode == ExitCode.OUTPUT
    assert b"could not be written" in closed.stderr
    assert b"Traceback" not in closed.stderr


def test_an_interrupt_while_it_waits_ends_it_and_leaves_nothing(cli: CommandLine, db: Database, report: str) -> None:
    writer = db.connect("app_owner")
    writer.execute("update public.report set body = 'open'")
    process = subprocess.Popen(
        [PROGRAM, "protect", report, "report:{id}"],
        env={**os.environ, "PYFENCE_DATABASE_URL": str(cli.url)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    waiting = "select count(*) from pg_locks where not granted and relation = 'public.report'::regclass"
    wait_until(lambda: db.execute(waiting) == [(1,)], "the command waits for the table")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, b"")
    assert b"interrupted" in err
    assert b"Traceback" not in err
    writer.rollback()
    assert db.execute("select count(*) from fence.protected_tables") == [(0,)]


def on_a_terminal(cli: CommandLine, *arguments: str, env: Mapping[str, str]) -> str:
    """What a command prints where stdout is a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        env={**os.environ, "PYFENCE_DATABASE_URL": str(cli.url), "COLUMNS": "200", "LC_ALL": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux's end of a terminal
            break
        if not data:
            break
        shown += data
    os.close(ours)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    return shown.decode().replace("\r\n", "\n")


def test_a_terminal_gets_a_table_with_colours(full: CommandLine) -> None:
    shown = on_a_terminal(full, "status", env={"TERM": "xterm-256color"})
    assert "\x1b[" in shown
    assert "─" in shown
    assert NAME in shown


def test_a_narrow_terminal_leaves_nothing_out(full: CommandLine, db: Database) -> None:
    ((token,),) = db.execute("select token from fence.leases")
    shown = on_a_terminal(full, "status", env={"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "20"})
    assert str(token) in shown
    assert NAME in shown


def test_a_terminal_without_colours_gets_none(full: CommandLine) -> None:
    plain = on_a_terminal(full, "status", env={"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert "─" in plain
    assert not any(f"\x1b[{colour}m" in plain for colour in range(30, 38))
    dumb = on_a_terminal(full, "status", env={"TERM": "dumb"})
    assert "\x1b" not in dumb
    assert "─" not in dumb
    assert on_a_terminal(full, "leases", "--json", env={"TERM": "xterm"}).startswith("{")


def test_the_version(cli: CommandLine) -> None:
    assert cli("--version").out == f"pyfence {version('pyfence-postgres')}\n"


def test_the_help_names_every_command_and_exit_code(cli: CommandLine) -> None:
    text = cli("--help").out
    for command in (
        "demo",
        "bench",
        "migrate",
        "protect",
        "set-mode",
        "unprotect",
        "status",
        "leases",
        "revoke",
        "role",
    ):
        assert f"\n  {command} " in text
    lines = text.split("Exit codes:")[1].splitlines()
    assert {int(line.split()[0]) for line in lines if line.strip()} >= {int(code) for code in ExitCode}
    assert cli(code=2).out == ""
    for command in (["migrate", "up"], ["role", "add"], ["protect"], ["status"]):
        assert "--database-url" in cli(*command, "--help").out


# -- demo and bench: what reaches them --------------------------------------------------------------------------------


def test_the_demo_gets_its_options_and_no_url_from_the_environment() -> None:
    cli = CommandLine("postgresql://production/db")
    with mock.patch("pyfence.demo.run", autospec=True, return_value=0) as run:
        cli("demo")
        assert run.call_args.kwargs == {"keep": False, "database_url": None, "json": False}
        cli("demo", "--keep", "--json", "--database-url", "postgresql://h/db")
        assert run.call_args.kwargs == {"keep": True, "database_url": "postgresql://h/db", "json": True}
    with mock.patch("pyfence.demo.run", return_value=1):
        assert cli("demo", code=1).out == ""


def test_the_benchmark_gets_its_options() -> None:
    cli = CommandLine("postgresql://production/db")
    with mock.patch("pyfence.bench.run", autospec=True, return_value=0) as run:
        cli("bench")
        assert run.call_args.kwargs == {"database_url": None, "quick": False, "rows": 300_000, "json": False}
        cli("bench", "--quick", "--rows", "1000", "--json", "--database-url", "postgresql://h/db")
        assert run.call_args.kwargs == {"database_url": "postgresql://h/db", "quick": True, "rows": 1000, "json": True}
    assert cli("bench", "--rows", "0", code=2).out == ""


# -- small things -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (8.24, "8.2s"),
        (59.99, "59.9s"),
        (65, "1m05s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (187200, "2d04h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_printable() -> None:
    assert printable("Größe 表 'x'") == "Größe 表 'x'"
    assert printable("a\x1b[0m\n\t\x7f\x9b\u202e\u200b\ud800") == r"a\x1b[0m\n\t\x7f\x9b\u202e\u200b\ud800"
    assert printable("a\nb\x07", keep="\n") == "a\nb\\x07"
