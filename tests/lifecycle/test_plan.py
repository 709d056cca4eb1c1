"""`pyfence protect --all`: the plan, what it refuses, and all or nothing."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest
from cli.command import PROGRAM, CommandLine
from harness import Database

SCHEMA = ("protect", "--all", "--schema", "public", "--resource-template")
KEYED = (*SCHEMA, "{@table}:{@key}")


@pytest.fixture
def cli(db: Database) -> CommandLine:
    db.execute(
        'create table public.a (x int, y text, primary key (x, y)); create table public."B {odd}" (id int primary key)'
    )
    return CommandLine(db.url("app_owner"))


def protected(db: Database) -> dict[str, str]:
    return dict(db.execute("select table_name, resource from fence.protected_tables"))  # type: ignore[arg-type]


def test_the_plan_is_shown_and_nothing_done_without_a_yes(cli: CommandLine, db: Database) -> None:
    done = cli(*KEYED)
    assert [line.split()[-2:] for line in done.out.splitlines()[1:]] == [
        ["protect", "B {odd}"[:0] + "{@table}:{id}"],
        ["protect", "{@table}:{x}:{y}"],
    ]
    assert "--yes" in done.err
    assert cli(*KEYED, "--json").json["applied"] is False
    assert protected(db) == {}


def test_a_second_time_keeps_and_another_option_changes(cli: CommandLine, db: Database) -> None:
    cli(*KEYED, "--yes")
    assert protected(db) == {"a": "{@table}:{x}:{y}", "B {odd}": "{@table}:{id}"}
    again = cli(*KEYED, "--json").json
    assert (again["applied"], {step["action"] for step in again["plan"]}) == (True, {"keep"})
    changed = cli(*KEYED, "--mode", "observe", "--yes", "--json").json
    assert {step["action"] for step in changed["plan"]} == {"change"}
    db.execute("alter table public.a disable trigger user")
    again = cli(*KEYED, "--yes", "--json").json
    assert [step["action"] for step in again["plan"]] == ["keep", "change"]
    assert db.execute("select count(*) from fence.protected_tables where armed and mode = 'observe'") == [(2,)]


def test_what_cannot_be_protected_stops_all_of_it(cli: CommandLine, db: Database) -> None:
    db.execute(
        "create table public.nokey (id int); create table public.dated (day date primary key);"
        "create table public.one (id int primary key); create table public.two (id int primary key);"
        "create table public.child () inherits (public.one, public.two)"
    )
    plan = cli(*KEYED, "--yes", "--json", code=1).json
    actions = {step["table"]: step["action"] for step in plan["plan"]}
    assert {actions[f"public.{name}"] for name in ("nokey", "dated", "one")} == {"cannot"}
    assert not plan["applied"]
    out = cli(*KEYED, "--yes", code=1).out
    assert "public.nokey: public.nokey has no primary key." in out
    assert "remedy: Use a key of type" in out
    assert protected(db) == {}
    db.execute("drop table public.one, public.two cascade")
    cli(*KEYED, "--yes", "--for", "public.nokey", "{@table}", "--except", "public.dated")
    assert sorted(protected(db)) == ["B {odd}", "a", "nokey"]


def test_what_is_found_only_on_the_way_takes_all_of_it_back(cli: CommandLine, db: Database) -> None:
    db.execute("create table public.nulls (id int); insert into public.nulls values (null)")
    error = cli(*KEYED, "--for", "public.nulls", "nulls:{id}", "--yes", "--json", code=1).error
    assert error["code"] == "LF010"
    assert "key is null" in error["message"]
    assert protected(db) == {}


def test_somebody_elses_table_and_an_empty_schema(cli: CommandLine, db: Database) -> None:
    db.execute("create table public.theirs (id int primary key)", user="fence_owner")
    (step,) = [s for s in cli(*KEYED, "--json", code=1).json["plan"] if s["action"] == "cannot"]
    assert (step["table"], "fence_owner" in step["problem"]) == ("public.theirs", True)
    db.execute("create schema bare", user="fence_owner")
    assert cli(*KEYED[:3], "bare", *KEYED[4:], "--json", code=1).error["code"] == "not_found"
    assert cli(*KEYED[:3], "missing", *KEYED[4:], "--json", code=1).error["code"] == "3F000"


@pytest.mark.parametrize(
    "arguments", [["--all"], ["--all", "--schema", "public"], ["t"], ["t", "r", "--yes"], ["t", "r", "--all"], []]
)
def test_halves_of_a_command_line(cli: CommandLine, arguments: list[str]) -> None:
    assert cli("protect", *arguments, code=2).out == ""


@pytest.mark.parametrize(("answer", "count"), [(b"n\n", 0), (b"y\n", 2)])
def test_a_terminal_is_asked(cli: CommandLine, db: Database, answer: bytes, count: int) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYFENCE_DATABASE_URL": str(cli.url)}
    with subprocess.Popen(
        [PROGRAM, *KEYED], env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        os.close(theirs)
        os.write(ours, answer)
        out, err = done.communicate(timeout=60)
    os.close(ours)
    assert b"{@table}:{id}" in out
    assert b"Guard 2 tables?" in err
    assert (done.returncode, len(protected(db))) == (int(count == 0), count)
