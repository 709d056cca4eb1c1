"""`pyfence violations`, `exempt` and `prune`."""

from __future__ import annotations

import pytest
from cli.command import CommandLine
from harness import Database, sqlstate

UPDATE = "update public.report set body = 'new'"


@pytest.fixture
def observed(cli: CommandLine, report: str) -> str:
    cli("protect", report, "report:{id}", "--mode", "observe")
    return report


def test_violations_say_who_would_break(cli: CommandLine, db: Database, observed: str) -> None:
    assert cli("violations").out == "nobody\n"
    for application, times in (("nightly", 2), ("import", 1)):
        job = db.connect("outsider", autocommit=True, application_name=application)
        for _ in range(times):
            job.execute(UPDATE)
    done = cli("violations", code=1)
    assert [line.split()[0] for line in done.out.splitlines()[1:]][:1] == ["outsider"]
    rows = cli("violations", "--json", code=1).json["violations"]
    assert [(row["application"], row["code"], row["count"]) for row in rows] == [
        ("import", "LF004", 1),
        ("nightly", "LF004", 2),
    ]
    assert rows[0]["protected_table"] == "public.report"
    assert len(cli("violations", "--table", observed, "--since", "1h", "--json", code=1).json["violations"]) == 2
    limited = cli("violations", "--limit", "1", "--json", code=1)
    assert limited.json["truncated"]
    assert cli("violations", "--since", "3x", code=2).out == ""
    assert cli("prune", "--older-than", "0m").out.strip().isdecimal()
    assert cli("violations").out == "nobody\n"


def test_exempt_lets_one_role_pass_until_it_ends(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    cli("exempt", report, "outsider", "--for", "8h", "--reason", "being changed")
    db.execute(UPDATE, user="outsider")
    with sqlstate("LF004"):
        db.execute(UPDATE, user="app")
    assert cli("violations", "--json", code=1).json["violations"][0]["exempt"]
    assert "role-exempt" in cli("doctor", "--json", code=None).out
    cli("exempt", report, "outsider", "--end")
    with sqlstate("LF004"):
        db.execute(UPDATE, user="outsider")
    until = cli("exempt", report, "outsider", "--until", "2099-01-01T06:00:00", "--reason", "x", "--json").json["until"]
    assert until == "2099-01-01T06:00:00+00:00"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--for", "8h"),
        ("--reason", "x"),
        ("--for", "8h", "--until", "2099-01-01", "--reason", "x"),
        ("--for", "8h", "--reason", "x", "--end"),
        ("--end", "--reason", "x"),
        ("--for", "8", "--reason", "x"),
        ("--for", "-8h", "--reason", "x"),
    ],
    ids=str,
)
def test_an_exemption_is_given_whole_or_not_at_all(cli: CommandLine, report: str, arguments: tuple[str, ...]) -> None:
    cli("protect", report, "report:{id}")
    assert cli("exempt", report, "outsider", *arguments, code=2).out == ""


def test_what_the_database_refuses_is_said(cli: CommandLine, report: str) -> None:
    cli("protect", report, "report:{id}")
    for role, length, code in (
        ("outsider", "0m", "LF010"),
        ("nobody at all", "1h", "42602"),
        ("nobody", "1h", "42704"),
    ):
        done = cli("exempt", report, role, "--for", length, "--reason", "x", "--json", code=None)
        assert done.code != 0
        assert done.error["code"] == code
    assert cli("exempt", report, "outsider", "--end", "--json", code=None).error["code"] == "LF010"
