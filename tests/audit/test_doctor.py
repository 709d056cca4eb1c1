"""`pyfence doctor` and `pyfence repair`: answers and exit codes."""

from __future__ import annotations

import pytest
from cli.command import CommandLine
from harness import Database


@pytest.fixture
def report(db: Database) -> Database:
    """public.report of app_owner's, protected."""
    db.execute("create table public.report (id int primary key)")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    return db


@pytest.fixture
def doctor(report: Database) -> CommandLine:
    """The command line of the monitor."""
    return CommandLine(report.url("monitor"))


@pytest.fixture
def cli(report: Database) -> CommandLine:
    """The command line of the tables' owner."""
    return CommandLine(report.url("app_owner"))


def break_guard(db: Database) -> None:
    db.execute("alter table public.report disable trigger all")


def test_warnings_leave_the_exit_code_at_0(doctor: CommandLine) -> None:
    done = doctor("doctor", "--json")
    assert done.json["counts"]["error"] == 0
    assert done.json["counts"]["warning"] > 0
    for finding in done.json["findings"]:
        assert set(finding) == {"severity", "code", "object", "detail", "remedy"}
    text = doctor("doctor").out
    assert "warning: public.report [owner-can-login]\n  " in text
    assert "\n  remedy: " in text


def test_an_error_makes_it_1_and_comes_first(doctor: CommandLine, report: Database) -> None:
    break_guard(report)
    done = doctor("doctor", "--json", code=1)
    assert done.json["counts"]["error"] == 1
    assert done.json["findings"][0]["code"] == "guard-disabled"
    shown = doctor("doctor", code=1)
    assert shown.out.startswith("error: public.report [guard-disabled]\n")
    assert "remedy: select fence.repair('public.report');" in shown.out
    assert "error: 1" in shown.err


def test_a_role_without_rights_is_told_what_it_needs(report: Database) -> None:
    error = CommandLine(report.url("outsider"))("doctor", "--json", code=1).error
    assert error["code"] == "42501"
    assert "--as monitor" in error["hint"]


@pytest.mark.parametrize("argument", [(), ("report",), ("public.report",)])
def test_repair_mends_it(cli: CommandLine, doctor: CommandLine, report: Database, argument: tuple[str, ...]) -> None:
    break_guard(report)
    done = cli("repair", *argument, "--json")
    assert done.json == {"repaired": 1, "findings": [], "counts": {"error": 0, "warning": 0, "info": 0}}
    doctor("doctor")
    again = cli("repair", *argument)
    assert (again.out, again.err) == ("", "nothing to repair\n")


def test_what_cannot_be_repaired_is_said(cli: CommandLine, report: Database) -> None:
    report.execute("alter table public.report rename column id to number")
    done = cli("repair", "--json", code=1)
    assert done.json["repaired"] == 0
    assert [finding["code"] for finding in done.json["findings"]] == ["template-broken"]


def test_repair_refuses_what_is_not_protected(cli: CommandLine, report: Database) -> None:
    report.execute("create table public.other ()")
    assert cli("repair", "public.other", "--json", code=1).error["code"] == "LF010"
    assert cli("repair", "public.nowhere", "--json", code=1).error["code"] == "42P01"
    assert "--as admin" in CommandLine(report.url("monitor"))("repair", "--json", code=1).error["hint"]


def test_the_event_triggers_are_printed_without_a_connection() -> None:
    nowhere = CommandLine("postgresql://127.0.0.1:1/nowhere")
    script = nowhere("doctor", "--event-triggers").out
    assert "create event trigger fence_trigger_dropped on sql_drop" in script
    assert nowhere("doctor", "--event-triggers", "--json").json == {"sql": script}
