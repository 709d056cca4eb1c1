"""Counted writes and token columns through the Python client and the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.command import CommandLine
from harness import Database

import pyfence


@pytest.fixture
def cli(db: Database) -> CommandLine:
    return CommandLine(db.url("app_owner"))


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, body text, token bigint)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    return "public.report"


@pytest.fixture
def fence(db: Database) -> Iterator[pyfence.Fence]:
    with pyfence.Fence(db.url("app")) as fence:
        yield fence


def row(db: Database) -> tuple[str, int | None]:
    ((body, token),) = db.execute("select body, token from public.report where id = 1")
    return body, token


def test_numbered_writes_of_a_lease(cli: CommandLine, db: Database, report: str, fence: pyfence.Fence) -> None:
    guard = cli("protect", report, "report:{id}", "--writes", "sequenced", "--token-column", "token", "--json").json
    assert (guard["protected_table"]["writes"], guard["protected_table"]["token_column"]) == ("sequenced", "token")
    with fence.lease("report:1") as lease:
        assert lease.fenced_update(report, {"id": 1}, {"body": "one"}, sequence=1) == 1
        with pytest.raises(pyfence.DuplicateWrite) as duplicate:
            lease.fenced_update(report, {"id": 1}, {"body": "again"}, sequence=1)
        assert f"token {lease.token}, sequence 1" in str(duplicate.value.detail)
        assert duplicate.value.table == "report"
        with pytest.raises(pyfence.SequenceError):
            lease.fenced_update(report, {"id": 1}, {"body": "none"})
        with lease.transaction(sequence=2) as connection:
            connection.execute("update public.report set body = body || ' two' where id = 1")
            connection.execute("update public.report set body = body || '!' where id = 1")
        with pytest.raises(pyfence.DuplicateWrite), lease.transaction(sequence=2) as connection:
            connection.execute("update public.report set body = 'again' where id = 1")
        assert lease.fenced_update(report, {"id": 99}, {"body": "x"}, sequence=1) == 0, "no row, no write"
        assert row(db) == ("one two!", lease.token)
        token = lease.token
    with fence.lease("report:1") as lease:
        assert lease.token > token
        assert lease.fenced_update(report, {"id": 1}, {"body": "anew"}, sequence=1) == 1
        assert row(db) == ("anew", lease.token)


def test_several_leases_each_with_its_number(cli: CommandLine, report: str, fence: pyfence.Fence) -> None:
    cli("protect", report, "report:{id}", "--writes", "sequenced")
    one, two = fence.acquire("report:1"), fence.acquire("report:2")
    for first, second, refused in ((1, 10, False), (2, 10, True), (2, 11, False)):
        claims = (one.claim.with_sequence(first), two.claim.with_sequence(second))
        try:
            with fence.transaction(*claims) as connection:
                connection.execute("update public.report set body = 'new'")
        except pyfence.DuplicateWrite:
            assert refused
        else:
            assert not refused


def test_one_write_of_a_lease(cli: CommandLine, report: str, fence: pyfence.Fence) -> None:
    cli("protect", report, "report:{id}", "--writes", "once")
    lease = fence.acquire("report:1")
    assert lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
    lease.renew()
    with pytest.raises(pyfence.DuplicateWrite):
        lease.fenced_update(report, {"id": 1}, {"body": "newer"})
    cli("protect", report, "report:{id}", "--writes", "many")
    assert lease.fenced_update(report, {"id": 1}, {"body": "newer"}) == 1


def test_the_command_line_refuses_a_column_that_cannot_be_stamped(cli: CommandLine, report: str) -> None:
    done = cli("protect", report, "report:{id}", "--token-column", "body", "--json", code=None)
    assert done.code != 0
    assert done.error["code"] == "LF010"
    assert "add column" in done.error["hint"]


def test_the_command_line_takes_a_token_column_away(cli: CommandLine, report: str) -> None:
    cli("protect", report, "report:{id}", "--token-column", "token")
    kept = cli("protect", report, "report:{id}", "--json").json["protected_table"]
    assert kept["token_column"] == "token"
    gone = cli("protect", report, "report:{id}", "--token-column", "", "--json").json["protected_table"]
    assert gone["token_column"] is None
