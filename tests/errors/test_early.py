"""A job without any claim fails before its first row: nothing with an outside effect has run for it."""

from __future__ import annotations

import pytest
from guards.scene import acquire, present, protect
from harness import Database, sqlstate

STATEMENTS = (
    "insert into public.report values (2, 'new')",
    "update public.report set body = 'new'",
    "delete from public.report",
)


@pytest.mark.parametrize("template", ["nightly", "report:{id}"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_trigger_of_the_application_runs_for_an_unaware_job(db: Database, template: str, statement: str) -> None:
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    db.execute("create sequence public.runs")  # a sequence keeps what a rollback takes back
    body = "begin perform nextval('public.runs'); return coalesce(new, old); end"
    db.execute(f"create function public.count() returns trigger language plpgsql as $${body}$$")
    when = "before insert or update or delete on public.report for each row"
    db.execute(f"create trigger count {when} execute function public.count()")
    protect(db, "public.report", template)
    with sqlstate("LF004"):
        db.execute(statement, user="outsider")
    assert db.execute("select is_called from public.runs") == [(False,)]
    connection = db.connect("app")
    present(connection, *[acquire(db, name) for name in ("nightly", "report:1", "report:2")])
    connection.execute(statement)
    connection.commit()
    assert db.execute("select is_called from public.runs") == [(True,)]
