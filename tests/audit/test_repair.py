"""fence.repair(): what it arms, what it leaves alone, and what it says."""

from __future__ import annotations

import pytest
from audit.findings import Stage
from harness import SUPERUSER, Database, sqlstate

REPAIR = "select fence.repair({})"


def repair(stage: Stage, table: str | None = None, role: str = "app_owner") -> int:
    """How many guards it armed."""
    call = REPAIR.format("" if table is None else f"'{table}'")
    return int(str(stage.rows(role, call)[0][0]))


def policies(stage: Stage) -> list[tuple[object, ...]]:
    return stage.rows("fence_owner", "select * from fence._guard order by id")


def test_nothing_to_do(stage: Stage) -> None:
    before = stage.rows(SUPERUSER, "select xmin, * from pg_trigger")
    assert repair(stage) == 0
    assert repair(stage, "public.plain") == 0
    assert stage.rows(SUPERUSER, "select xmin, * from pg_trigger") == before
    assert stage.notices == []


def test_it_arms_all_or_one_and_changes_no_policy(stage: Stage) -> None:
    before = policies(stage)
    stage.run(
        "table_owner",
        "alter table public.plain disable trigger all",
        'drop trigger "0_fence_update" on public.report',
        'drop trigger "0_fence_update" on public.tree_m',
        "create table public.child_2 () inherits (public.parent)",
    )
    assert set(stage.armed().values()) == {False}
    assert repair(stage, "public.plain") == 1
    assert stage.armed()["plain"]
    assert repair(stage, "public.tree_m1") == 1, "a part of a tree stands for the tree"
    assert stage.armed()["tree"]
    assert repair(stage) == 2
    assert set(stage.armed().values()) == {True}
    assert repair(stage) == 0
    assert policies(stage) == before
    events = stage.rows("monitor", "select detail ->> 'table_name' from fence.history where event = 'guard repaired'")
    assert sorted(events) == [("parent",), ("plain",), ("report",), ("tree",)]


def test_a_table_made_again_gets_the_guard_it_had(stage: Stage) -> None:
    before = policies(stage)
    stage.run("table_owner", "drop table public.plain", "create table public.plain (id int)")
    assert repair(stage) == 1
    assert policies(stage) == before
    with sqlstate("LF004"):
        stage.run("table_owner", "insert into public.plain values (1)")


def test_other_peoples_tables_are_left_alone(stage: Stage) -> None:
    stage.run(
        "table_owner", "alter table public.plain disable trigger all", "alter table public.report disable trigger all"
    )
    stage.run(SUPERUSER, "alter table public.plain owner to outsider")
    assert repair(stage) == 1
    assert stage.armed()["report"]
    assert not stage.armed()["plain"]
    with sqlstate("42501"):
        repair(stage, "public.plain")


def test_a_table_without_a_guard_is_refused(stage: Stage) -> None:
    stage.run("table_owner", "create table public.other ()")
    with sqlstate("LF010"):
        repair(stage, "public.other")


def test_clients_and_monitors_may_not(stage: Stage) -> None:
    for role in ("app", "monitor", "outsider"):
        with sqlstate("42501"):
            repair(stage, role=role)


def test_it_says_what_it_could_not_do_and_does_the_rest(db: Database) -> None:
    db.execute("create table public.a (id int); create table public.b (id int)")
    for table in ("a", "b"):
        db.execute(f"select fence.protect('public.{table}', '{table}')")
        db.execute(f"alter table public.{table} disable trigger all")
    writer, owner = db.connect("outsider"), db.connect("app_owner")
    writer.execute("insert into public.a values (1)")
    notices: list[str] = []
    owner.add_notice_handler(lambda diag: notices.append(str(diag.message_primary)))
    assert owner.execute("select fence.repair()").fetchone() == (1,)
    (notice,) = notices
    assert "public.a" in notice
    assert "55P03" in notice
    owner.commit()
    assert db.execute("select table_name, armed from fence.protected_tables order by 1") == [("a", False), ("b", True)]


@pytest.mark.parametrize("statement", ["drop column tenant", "rename column tenant to renamed"])
def test_a_template_that_does_not_fit_is_not_its_business(stage: Stage, statement: str) -> None:
    stage.run("app_owner", "select fence.protect('public.report', '{tenant}')")
    stage.run("table_owner", f"alter table public.report {statement}{' cascade' if 'drop' in statement else ''}")
    assert repair(stage) == 0
    assert "template-broken" in [finding.code for finding in stage.audit()]
