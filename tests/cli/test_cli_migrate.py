"""`pyfence migrate`: every subcommand, its answer, its exit code."""

from __future__ import annotations

import psycopg
import pytest
from cli.command import CommandLine
from harness import Database, wait_until

from pyfence import migrate


def test_up_check_current_down(empty_cli: CommandLine) -> None:
    head = migrate.head()
    assert empty_cli("migrate", "current").out == "base\n"
    assert empty_cli("migrate", "up").out == f"{head}\n"
    assert empty_cli("migrate", "check").out == f"{head}\n"
    assert empty_cli("migrate", "current").out == f"{head}\n"
    again = empty_cli("migrate", "up")
    assert again.out == f"{head}\n"
    assert f"already at {head}" in again.err
    assert empty_cli("migrate", "down").out == "base\n"
    assert empty_cli("migrate", "check", code=1).out == ""


def test_each_answers_in_json(empty_cli: CommandLine) -> None:
    head = migrate.head()
    assert empty_cli("migrate", "current", "--json").json == {"revision": None, "head": head}
    assert empty_cli("migrate", "up", "--json").json == {"revision": head, "previous": None}
    assert empty_cli("migrate", "check", "--json").json == {"revision": head, "head": head}
    assert empty_cli("migrate", "stamp", head, "--json").json == {"revision": head, "previous": head}
    assert empty_cli("migrate", "down", "base", "--json").json == {"revision": None, "previous": head}
    assert empty_cli("migrate", "sql", "--json").json == {"revisions": "head", "sql": migrate.sql()}


def test_check_of_a_database_behind_says_what_to_do(empty_cli: CommandLine) -> None:
    refused = empty_cli("migrate", "check", code=1)
    assert "[LF011]" in refused.err
    assert "pyfence migrate up" in refused.err
    error = empty_cli("migrate", "check", "--json", code=1).error
    assert error["code"] == "LF011"
    assert "pyfence migrate up" in f"{error['message']} {error['hint']}"


def test_sql_needs_no_database_and_installs_the_same(empty_cli: CommandLine, empty_db: Database) -> None:
    nowhere = CommandLine("postgresql://nobody@127.0.0.1:1/nothing")
    script = nowhere("migrate", "sql").out
    assert script == migrate.sql()
    with psycopg.connect(empty_db.url("fence_owner"), autocommit=True) as connection:
        connection.execute(script.encode(), prepare=False)
    assert empty_cli("migrate", "check").out == f"{migrate.head()}\n"
    assert nowhere("migrate", "sql", f"{migrate.head()}:base").out == migrate.sql(f"{migrate.head()}:base")


def test_sql_of_an_unknown_revision_is_refused(empty_cli: CommandLine) -> None:
    assert "known: base" in empty_cli("migrate", "sql", "9999", code=1).err
    assert empty_cli("migrate", "up", "9999", "--json", code=1).error["code"] == "LF011"


def test_stamp_is_refused_where_nothing_is_installed(empty_cli: CommandLine) -> None:
    assert "cannot stamp" in empty_cli("migrate", "stamp", code=1).err
    assert empty_cli("migrate", "current").out == "base\n"


def test_down_is_refused_while_a_table_is_protected(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    owner = CommandLine(db.url("fence_owner"))
    refused = owner("migrate", "down", "--json", code=1)
    assert refused.error["message"]
    assert owner("migrate", "check").out == f"{migrate.head()}\n"


def test_up_without_the_right_to_create_is_one_message(empty_db: Database) -> None:
    refused = CommandLine(empty_db.url("outsider"))("migrate", "up", code=1)
    assert refused.out == ""
    assert refused.err.startswith("error: ")
    assert "[42501]" in refused.err


@pytest.mark.parametrize("command", [["migrate"], ["migrate", "sideways"], ["migrate", "up", "1", "2"]])
def test_what_is_not_a_command_is_a_usage_error(empty_cli: CommandLine, command: list[str]) -> None:
    assert empty_cli(*command, code=2).out == ""


def test_up_queues_and_gives_up_where_it_is_told_to(empty_cli: CommandLine, empty_db: Database) -> None:
    with psycopg.connect(empty_db.url("fence_owner")) as first:
        migrate.up(first)
        late = empty_cli("migrate", "up", "--timeout", "0.3", "--json", code=3)
        assert late.error["code"] == "57014"
        assert "--timeout" in late.error["hint"]
        waiting = empty_db.in_thread(empty_cli.program, "migrate", "up", code=0)
        blocked = "select count(*) from pg_locks where not granted and locktype = 'advisory'"
        wait_until(lambda: empty_db.execute(blocked, user="postgres") == [(1,)], "the second upgrade waits")
        first.commit()
    assert waiting.result(30).out == f"{migrate.head()}\n"
