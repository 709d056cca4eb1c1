"""The optional event triggers: a new part of a protected tree is armed at once; nobody switches a guard off by hand."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from audit.findings import Stage
from harness import SUPERUSER, Database, sqlstate

import pyfence
from pyfence import migrate

SCRIPT = (Path(pyfence.__file__).parent / "_optional_sql" / "event_triggers.sql").read_text()


@pytest.fixture
def events(stage: Stage) -> Stage:
    """The stage with the event triggers, applied twice as after an upgrade."""
    stage.run(SUPERUSER, SCRIPT, SCRIPT)
    return stage


@pytest.mark.parametrize(
    "statements",
    [
        ["create table public.new partition of public.tree for values in ('b')"],
        ["create table public.new partition of public.tree_m for values in ('n')"],
        [
            "create table public.new (id int, region text, body text)",
            "alter table public.new owner to table_owner",
            "alter table public.tree attach partition public.new for values in ('b')",
        ],
        ["create table public.new () inherits (public.parent)"],
    ],
)
def test_a_new_part_is_armed_at_once(events: Stage, statements: list[str]) -> None:
    before = events.audit()
    events.run("app_owner", *statements, "alter table public.new owner to table_owner")
    assert all(events.armed().values())
    codes = {finding.code for finding in events.audit() if finding not in before}
    assert codes <= {"truncate-granted"}
    with sqlstate("LF004"):
        events.run("app_owner", "truncate public.new")


@pytest.mark.parametrize("role", [SUPERUSER, "table_owner"])
def test_who_may_not_repair_is_told(events: Stage, role: str) -> None:
    events.run(role, "create table public.new partition of public.tree for values in ('b')")
    assert [notice for notice in events.notices if "public.new" in notice and "not fully guarded" in notice]
    assert not events.armed()["tree"]


@pytest.mark.parametrize(
    "statement",
    [
        'drop trigger "0_fence_claim" on public.report',
        'drop trigger "~0_fence_stamp" on public.report',
        "alter table public.report drop column id cascade",
        'alter table public.report disable trigger "0_fence_update"',
        "alter table public.report disable trigger all",
        "alter table public.report enable trigger all",
        'alter table public.tree_a disable trigger "0_fence_insert"',
    ],
)
def test_a_guard_is_not_switched_off_by_hand(events: Stage, statement: str) -> None:
    with sqlstate("42501") as refused:
        events.run("table_owner", statement)
    assert "select fence.unprotect(" in refused.diag.message_hint
    assert all(events.armed().values())


def test_nobody_replaces_a_trigger_of_a_guard_by_the_right_to_make_triggers(events: Stage) -> None:
    events.run("table_owner", "grant trigger on public.report to outsider")
    events.run(SUPERUSER, "create schema his authorization outsider")
    events.run("outsider", "create function his.f() returns trigger language plpgsql as 'begin return null; end'")
    make = 'trigger "{}" before insert or delete or update or truncate on public.report execute function his.f()'
    with sqlstate("42501") as refused:
        events.run("outsider", f"create or replace {make.format('0_fence_claim')}")
    assert "select fence.unprotect(" in refused.diag.message_hint
    assert all(events.armed().values())
    events.run("outsider", f"create {make.format('his')}")


def test_everything_else_goes_on(events: Stage) -> None:
    events.run(
        "app_owner",
        "select fence.protect('public.report', 'report:{tenant}', p_token_column => '')",
        "select fence.repair()",
        "alter table public.report add column more text",
        "alter table public.tree detach partition public.tree_a",
        "create table public.other (id int)",
        "alter table public.other disable trigger all",
        "drop table public.plain",
        "select fence.unprotect('public.report')",
        "select fence.protect('public.tree_a', 'tree:{id}')",
        "select fence.unprotect('public.tree')",
    )


def test_a_fault_from_before_can_be_repaired(stage: Stage) -> None:
    stage.run("table_owner", "alter table public.report disable trigger all")
    stage.run(SUPERUSER, SCRIPT)
    with sqlstate("42501"):
        stage.run("table_owner", "alter table public.report add column more text")
    stage.run("app_owner", "select fence.repair('public.report')")
    stage.run("table_owner", "alter table public.report add column more text")


def test_they_outlive_an_uninstall_and_an_install(db: Database) -> None:
    with psycopg.connect(db.url(SUPERUSER)) as connection:
        connection.execute(SCRIPT, prepare=False)
    migrate.down(db.url("fence_owner"))
    db.execute("create table public.t (id int); alter table public.t add column more text; drop table public.t")
    migrate.up(db.url("fence_owner"))
    with psycopg.connect(db.url(SUPERUSER)) as connection:
        connection.execute("drop schema fence_events cascade")
        assert connection.execute("select evtname from pg_event_trigger").fetchall() == []
