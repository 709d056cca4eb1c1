"""Every way to break a guard is found, named, and mended by the remedy as it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit.findings import OWNER, Fault, Stage, mend
from harness import SUPERUSER, Cluster


def error(code: str, table: str) -> tuple[str, str, str]:
    return "error", code, f"public.{table}"


def warning(code: str, table: str) -> tuple[str, str, str]:
    return "warning", code, f"public.{table}"


def info(code: str, table: str) -> tuple[str, str, str]:
    return "info", code, f"public.{table}"


IMPOSTOR = "create function public.nothing() returns trigger language plpgsql as $$ begin return null; end $$"

FAULTS = {
    "disabled": Fault(
        ('alter table public.report disable trigger "0_fence_update"',),
        (error("guard-disabled", "report"),),
        ("report",),
    ),
    "all disabled": Fault(
        ("alter table public.plain disable trigger all",), (error("guard-disabled", "plain"),), ("plain",)
    ),
    "origin only": Fault(
        ('alter table public.report enable trigger "0_fence_delete"',),
        (error("guard-not-always", "report"),),
        ("report",),
    ),
    "replica only": Fault(
        ('alter table public.report enable replica trigger "0_fence_move"',),
        (error("guard-not-always", "report"),),
        ("report",),
    ),
    "dropped": Fault(
        ('drop trigger "0_fence_claim" on public.report',), (error("guard-missing", "report"),), ("report",)
    ),
    "renamed trigger": Fault(
        ('alter trigger "0_fence_update" on public.report rename to mine',),
        (error("guard-missing", "report"), warning("guard-extra", "report")),
        ("report",),
    ),
    "replaced": Fault(
        (
            IMPOSTOR,
            'create or replace trigger "0_fence_guard" before insert or update or delete or truncate on public.plain'
            " for each statement execute function public.nothing()",
            'alter table public.plain enable always trigger "0_fence_guard"',
        ),
        # No trigger of the guard is left: the table is found by its name.
        (error("table-unguarded", "plain"), error("guard-replaced", "plain")),
        ("plain",),
    ),
    "replaced by a constraint trigger": Fault(
        (
            IMPOSTOR,
            'drop trigger "0_fence_delete" on public.report',
            'create constraint trigger "0_fence_delete" after delete on public.report'
            " for each row execute function public.nothing()",
        ),
        (error("guard-replaced", "report"),),
        ("report",),
    ),
    "defined differently": Fault(
        (
            'create or replace trigger "0_fence_guard" before insert or update or delete or truncate on public.plain'
            " for each statement when (false) execute function fence._guard_1()",
            'alter table public.plain enable always trigger "0_fence_guard"',
        ),
        (error("guard-altered", "plain"),),
        ("plain",),
        role="app_owner",
    ),
    "defined for fewer columns": Fault(
        (
            'drop trigger "0_fence_claim" on public.report',
            'create trigger "0_fence_claim" before insert or delete or update of body on public.report'
            " for each statement execute function fence._guard_2()",
            'alter table public.report enable always trigger "0_fence_claim"',
        ),
        (error("guard-altered", "report"),),
        ("report",),
        role="app_owner",
    ),
    **{
        f"made without {what}": Fault(
            (
                f'create or replace trigger "0_fence_{name}" after {event} on public.report'
                f" for each {level} execute function fence._guard_2()",
                f'alter table public.report enable always trigger "0_fence_{name}"',
            ),
            (error("guard-altered", "report"),),
            ("report",),
            role="app_owner",
        )
        for what, name, event, level in (
            ("its old rows", "delete", "delete", "statement"),
            ("its new rows", "insert", "insert", "statement"),
            ("its condition", "move", "update", "row"),
        )
    },
    "replaced where the function is gone": Fault(
        (
            "set local client_min_messages = warning",
            "drop function fence._guard_1() cascade",
            IMPOSTOR,
            'create trigger "0_fence_guard" before insert or update or delete or truncate on public.plain'
            " for each statement execute function public.nothing()",
            'alter table public.plain enable always trigger "0_fence_guard"',
        ),
        (error("table-unguarded", "plain"), error("guard-replaced", "plain")),
        ("plain",),
        role=SUPERUSER,
    ),
    "an extra trigger": Fault(
        ("create trigger zz before insert on public.plain for each row execute function fence._guard_1()",),
        (warning("guard-extra", "plain"),),
        role="app_owner",
    ),
    "middle level without its guard": Fault(
        ('drop trigger "0_fence_insert" on public.tree_m',),
        (error("guard-missing", "tree_m"), error("row-guard-off", "tree_m1")),
        ("tree",),
    ),
    "middle level without its guard before the statement": Fault(
        ('drop trigger "0_fence_claim" on public.tree_m',), (error("guard-missing", "tree_m"),), ("tree",)
    ),
    "middle level without any guard": Fault(
        tuple(f'drop trigger "0_fence_{name}" on public.tree_m' for name in ("claim", "insert", "update", "delete")),
        (error("guard-missing", "tree_m"), error("row-guard-off", "tree_m1")),
        ("tree",),
    ),
    "row triggers off on a new partition": Fault(
        (
            "create table public.tree_n1 partition of public.tree_m for values in ('n')",
            "alter table public.tree_n1 disable trigger all",
        ),
        (
            error("guard-disabled", "tree_n1"),
            error("guard-missing", "tree_n1"),
            error("row-guard-off", "tree_n1"),
        ),
        ("tree",),
    ),
    "a row trigger that must stay on, off on a leaf": Fault(
        ('alter table public.tree_a disable trigger "~~0_fence_leave"',),
        (error("guard-disabled", "tree_a"),),
        ("tree",),
    ),
    "a row trigger of a middle level off": Fault(
        ('alter table only public.tree_m disable trigger "0_fence_row1"',),
        (error("guard-disabled", "tree_m"),),
        ("tree",),
    ),
    "a new partition": Fault(
        ("create table public.tree_b partition of public.tree for values in ('b')",),
        (warning("partition-unarmed", "tree_b"),),
        ("tree",),
    ),
    "a new partition, two levels down": Fault(
        ("create table public.tree_n1 partition of public.tree_m for values in ('n')",),
        (warning("partition-unarmed", "tree_n1"),),
        ("tree",),
    ),
    "an attached partition": Fault(
        (
            "create table public.tree_b (id int, region text, body text)",
            "alter table public.tree attach partition public.tree_b for values in ('b')",
        ),
        (warning("partition-unarmed", "tree_b"),),
        ("tree",),
    ),
    "a new child": Fault(
        ("create table public.child_2 () inherits (public.parent)",),
        (error("child-unguarded", "child_2"),),
        ("parent",),
    ),
    "a detached partition": Fault(
        ("alter table public.tree detach partition public.tree_a",), (warning("guard-elsewhere", "tree_a"),)
    ),
    "a detached branch": Fault(
        ("alter table public.tree detach partition public.tree_m",), (error("guard-partial", "tree_m"),)
    ),
    "a detached partition whose rows were stamped": Fault(
        (
            "alter table public.tree add token bigint",
            "select fence.protect('public.tree', 'tree:{id}', p_token_column => 'token')",
            "alter table public.tree detach partition public.tree_a",
        ),
        (error("guard-partial", "tree_a"),),
        role="app_owner",
    ),
    "a copy of other columns": Fault(
        (
            "create table public.copy (number int)",
            "revoke truncate on public.copy from app, outsider",
            "alter table public.copy owner to table_owner",
            "create trigger copied before insert on public.copy for each statement execute function fence._guard_2()",
        ),
        (warning("guard-elsewhere", "copy"),),
        role="app_owner",
    ),
    "a partition attached again": Fault(
        (
            "alter table public.tree detach partition public.tree_a",
            "alter table public.tree attach partition public.tree_a for values in ('a')",
        ),
        (warning("row-guard-on", "tree_a"),),
        ("tree",),
    ),
    "a copy's trigger": Fault(
        (
            "create table public.copy (like public.plain)",
            "revoke truncate on public.copy from app, outsider",
            "alter table public.copy owner to table_owner",
            "create trigger copied before insert on public.copy for each statement execute function fence._guard_1()",
        ),
        (warning("guard-elsewhere", "copy"),),
        role="app_owner",
    ),
    "attached to an unguarded root": Fault(
        (
            "create table public.above (id int, tenant text, body text, token bigint) partition by list (tenant)",
            "alter table public.report alter tenant set not null",
            "alter table public.above attach partition public.report for values in ('a')",
        ),
        (error("guard-bypassed", "report"),),
        ("report",),
    ),
    "inherits from an unguarded parent": Fault(
        ("create table public.above (id int)", "alter table public.child inherit public.above"),
        (error("guard-bypassed", "child"),),
    ),
    "renamed": Fault(("alter table public.plain rename to plainer",), (info("table-renamed", "plainer"),)),
    "moved": Fault(
        ("create schema elsewhere authorization table_owner", "alter table public.plain set schema elsewhere"),
        (("info", "table-renamed", "elsewhere.plain"),),
        role=SUPERUSER,
    ),
    "dropped and made again": Fault(
        ("drop table public.report", "create table public.report (id int primary key, body text, token bigint)"),
        (error("table-unguarded", "report"), error("guard-missing", "report")),
        ("report",),
    ),
    "swapped": Fault(
        ("alter table public.plain rename to plain_old", "create table public.plain (id int)"),
        (error("table-swapped", "plain"),),
    ),
    "swapped by a likeness": Fault(
        (
            "create table public.fresh (like public.plain including all)",
            "alter table public.plain rename to plain_old",
            "alter table public.fresh rename to plain",
            "drop table public.plain_old",
        ),
        (error("table-unguarded", "plain"), error("guard-missing", "plain")),
        ("plain",),
    ),
    "table dropped": Fault(
        ("drop table public.report",), (warning("guard-orphaned", "report"),), ("report",), mender="fence_owner"
    ),
    "table dropped, and another guarded under its name": Fault(
        (
            "alter table public.plain rename to plain_old",
            "create table public.plain (id int primary key)",
            "revoke truncate on public.plain from app, outsider",
            "alter table public.plain owner to table_owner",
            "select fence.protect('public.plain', 'other')",
            "drop table public.plain_old",
        ),
        (warning("guard-orphaned", "plain"),),
        role="app_owner",
        mender="fence_owner",
    ),
    "unlogged": Fault(
        ("alter table public.report set unlogged",), (warning("table-unlogged", "report"),), mender=OWNER
    ),
    "a rule that redirects": Fault(
        ("create rule away as on insert to public.report do instead nothing",),
        (warning("rule-instead", "report"),),
        mender=OWNER,
    ),
    "a trigger after the leaving row": Fault(
        (
            IMPOSTOR,
            'create trigger "~~~late" before update on public.tree for each row execute function public.nothing()',
        ),
        (error("trigger-after-guard", "tree"),),
        ("tree",),
        mender=OWNER,
    ),
    "a trigger after the stamp": Fault(
        (
            IMPOSTOR,
            'create trigger "\u00e4" before insert on public.report for each row execute function public.nothing()',
        ),
        (warning("trigger-after-guard", "report"),),
        mender=OWNER,
    ),
    "a trigger that may change what arrives": Fault(
        (
            IMPOSTOR,
            "create trigger a before insert on public.tree_m for each row execute function public.nothing()",
        ),
        (error("guard-altered", "tree"),),
        ("tree",),
    ),
    "the function's source": Fault(
        (
            "create or replace function fence._guard_1() returns trigger language plpgsql volatile security definer"
            " set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as 'begin return null; end'",
        ),
        (error("guard-function-changed", "plain"),),
        role="fence_owner",
    ),
    "the function is stable": Fault(
        ("alter function fence._guard_1() stable",), (error("guard-function-changed", "plain"),), role="fence_owner"
    ),
    "the function is an invoker": Fault(
        ("alter function fence._guard_1() security invoker",),
        (error("guard-function-changed", "plain"),),
        role="fence_owner",
    ),
    "the function waits for ever": Fault(
        ("alter function fence._guard_1() reset lock_timeout",),
        (error("guard-function-changed", "plain"),),
        role="fence_owner",
    ),
    "the function is granted": Fault(
        ("grant execute on function fence._guard_1() to outsider",),
        (error("guard-function-changed", "plain"),),
        role="fence_owner",
    ),
    "TRIGGER granted": Fault(
        ("grant trigger on public.report to app, outsider",), (warning("trigger-granted", "report"),), mender=OWNER
    ),
    "TRUNCATE granted": Fault(
        ("grant truncate on public.tree_a to public",), (info("truncate-granted", "tree_a"),), mender=OWNER
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_remedy_mends_it(stage: Stage, name: str, cluster: Cluster) -> None:
    fault = FAULTS[name]
    if name == "a trigger after the leaving row" and cluster.version < 15:
        # There, clones have names of their own.
        clones = (error("trigger-after-guard", table) for table in ("tree_a", "tree_m", "tree_m1"))
        fault = replace(fault, findings=(*fault.findings, *clones))
    before = stage.audit()
    left = mend(stage, fault, before)
    if name == "swapped":  # the old table keeps its guard, under its new name
        assert [finding.short for finding in left] == [("info", "table-renamed", "public.plain_old")]
        stage.run(fault.mender, left[0].remedy)
        left = [finding for finding in stage.audit() if finding not in before]
    assert left == []
    assert all(stage.armed().values())
