"""`pyfence protect`, `set-mode` and `unprotect`."""

from __future__ import annotations

import psycopg
import pytest
from cli.command import CommandLine
from harness import Database, sqlstate


def test_protect_guards_and_unprotect_lets_go(cli: CommandLine, db: Database, report: str) -> None:
    done = cli("protect", "public.report", "report:{id}")
    heading, row = done.out.splitlines()
    assert heading.split()[:4] == ["TABLE", "RESOURCE", "MODE", "ARMED"]
    assert row.split()[:4] == ["public.report", "report:{id}", "enforce", "yes"]
    with sqlstate("LF004"):
        db.execute("update public.report set body = 'new'", user="outsider")
    assert cli("unprotect", "public.report").out == "public.report\n"
    db.execute("update public.report set body = 'new'", user="outsider")


def test_protect_answers_with_the_guard_in_json(cli: CommandLine, report: str) -> None:
    guard = cli("--json", "protect", report, "report:{id}", "--expiry", "until_superseded").json["protected_table"]
    assert guard["table"] == "public.report"
    assert (guard["schema_name"], guard["table_name"]) == ("public", "report")
    assert (guard["resource"], guard["scope"]) == ("report:{id}", "row")
    assert (guard["mode"], guard["expiry"], guard["armed"]) == ("enforce", "until_superseded", True)
    assert guard["protected_at"].endswith("+00:00")
    kept = cli("protect", report, "report:{id}", "--json").json["protected_table"]
    assert kept["expiry"] == "until_superseded", "what is not given keeps its value"


def test_every_parameter_reaches_the_database(cli: CommandLine, db: Database, report: str) -> None:
    db.execute("alter table public.report add token bigint")
    given = {
        "--mode": ("observe", "mode"),
        "--expiry": ("until_superseded", "expiry"),
        "--writes": ("once", "writes"),
        "--inserts": ("allow", "inserts"),
        "--covering": ("all", "covering"),
        "--token-column": ("token", "token_column"),
    }
    for option, (value, field) in given.items():
        done = cli("protect", report, "report:{id}", option, value, "--json")
        assert done.json["protected_table"][field] == value
    assert cli("protect", report, "report:{id}", "--uncatchable", "--json").json["protected_table"]["uncatchable"]
    kept = cli("protect", report, "report:{id}", "--catchable", "--json").json["protected_table"]
    assert {field: kept[field] for _, field in given.values()} == {field: value for value, field in given.values()}
    assert not kept["uncatchable"]


def test_set_mode(cli: CommandLine, report: str) -> None:
    cli("protect", report, "report:{id}")
    done = cli("set-mode", report, "enforce", "--json")
    assert done.json["protected_table"]["mode"] == "enforce"
    assert cli("set-mode", report, "loud", code=2).out == ""


@pytest.mark.parametrize(
    ("create", "argument", "shown"),
    [
        ('"Größe 表"', '"Größe 表"', 'public."Größe 表"'),
        ('"a""b; drop table x --"', 'public."a""b; drop table x --"', 'public."a""b; drop table x --"'),
        ('"2024"', '"2024"', 'public."2024"'),
        ("t" * 63, "T" * 63, "public." + "t" * 63),
    ],
)
def test_a_table_is_named_as_in_sql_and_resolved_by_the_server(
    cli: CommandLine, db: Database, create: str, argument: str, shown: str
) -> None:
    db.execute(f"create table public.{create} (id int primary key)")
    assert cli("protect", argument, "x", "--json").json["protected_table"]["table"] == shown
    assert cli("unprotect", shown, "--json").json == {"table": shown, "protected": False}


@pytest.mark.parametrize("table", ["2024", "", "-", " 7 "])
def test_a_number_is_no_name(cli: CommandLine, table: str) -> None:
    assert cli("protect", "--", table, "x", code=2).out == ""


@pytest.mark.parametrize(
    "command", [["protect", "TABLE", "x"], ["set-mode", "TABLE", "enforce"], ["unprotect", "TABLE"]]
)
@pytest.mark.parametrize(
    ("table", "code"), [("nowhere", "42P01"), ("nowhere.at_all", "3F000"), ('"Report"', "42P01"), ('"open', "42602")]
)
def test_a_table_that_does_not_exist(cli: CommandLine, report: str, command: list[str], table: str, code: str) -> None:
    error = cli("--json", *(table if part == "TABLE" else part for part in command), code=1).error
    assert error["code"] in (code, "42P01")
    if error["code"] != "42602":
        assert "schema.table" in error["hint"]


def test_somebody_elses_table_is_refused(cli: CommandLine, db: Database) -> None:
    db.execute("create schema theirs; create table theirs.t (id int primary key)", user="postgres")
    db.execute("grant usage on schema theirs to app_owner", user="postgres")
    error = cli("--json", "protect", "theirs.t", "x", code=1).error
    assert error["code"] == "42501"
    assert error["hint"]


def test_a_role_without_rights_is_told_what_it_needs(db: Database, report: str) -> None:
    refused = CommandLine(db.url("outsider"))("protect", report, "x", code=1)
    assert "[42501]" in refused.err
    assert "pyfence role add" in refused.err


def test_a_refusal_shows_code_detail_and_hint(cli: CommandLine, db: Database, report: str) -> None:
    refused = cli("protect", report, "report:{nix}", code=1)
    error = cli("protect", report, "report:{nix}", "--json", code=1).error
    assert refused.out == ""
    assert refused.err == f"error: {error['message']} [LF010]\ndetail: {error['detail']}\nhint: {error['hint']}\n"
    assert "[LF010]" in cli("set-mode", report, "enforce", code=1).err
    assert "[LF010]" in cli("unprotect", report, code=1).err
    assert db.execute("select count(*) from fence.protected_tables") == [(0,)]


def test_a_busy_table_is_no_answer_and_nothing_is_left(cli: CommandLine, db: Database, report: str) -> None:
    with psycopg.connect(db.url("app_owner")) as writer:
        writer.execute("update public.report set body = 'open'")
        done = cli("protect", report, "report:{id}", "--timeout", "0.3", "--json", code=3)
    assert done.error["code"] == "57014"
    assert "--timeout" in done.error["hint"]
    assert db.execute("select count(*) from fence.protected_tables") == [(0,)]


def test_a_guard_that_lost_its_table_is_shown_with_its_name(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    db.execute("drop table public.report")
    rows = cli("status", "--json").json["protected_tables"]
    for row in rows:
        assert (row["table"], row["table_name"], row["armed"]) == (None, "report", False)
    assert ("public.report (gone)" in cli("status").out) == bool(rows)
