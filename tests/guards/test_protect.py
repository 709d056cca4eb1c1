"""Putting guards on tables, changing them, and taking them off: completely or not at all."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import acquire, by_hand, check_refusal, contents, forge, present, protect
from harness import Database, sqlstate

TRIGGERS = (
    "select tgname::text, tgenabled::text from pg_trigger where tgrelid = 'public.t'::regclass "
    "and not tgisinternal order by tgname"
)


@pytest.fixture
def t(db: Database) -> str:
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old'), (2, 'b', 'old')")
    return "public.t"


def guard(db: Database) -> list[Any]:
    """What the view says of every guard, but for who and when."""
    return db.execute(
        "select protected_table::text, resource, scope, mode, expiry, writes, inserts, armed "
        "from fence.protected_tables order by id"
    )


def traces(db: Database) -> dict[str, list[Any]]:
    """Everything that a guard leaves in the catalog and in pyfence's tables."""
    return {
        "triggers": db.execute(
            "select tgrelid::regclass::text, tgname::text from pg_trigger where tgname like '0\\_fence%%' order by 1, 2"
        ),
        "functions": db.execute(
            "select proname::text from pg_proc where proname like '\\_guard\\_%%' and proname ~ '[0-9]$'"
        ),
        "registry": db.execute("select id from fence._guard", user="fence_owner"),
    }


def writes(db: Database, resource: str, statement: str) -> int:
    """Rows changed under a fresh lease on the resource, taken back again."""
    lease = acquire(db, resource)
    connection = db.connect("app")
    present(connection, lease)
    rows = connection.execute(statement).rowcount
    connection.rollback()
    db.execute("select fence.release(%s, %s, %s)", lease.parameters, user="app")
    return rows


# -- what it does ------------------------------------------------------------------------------------------------------


def test_defaults_are_the_strict_ones(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    assert guard(db) == [("public.t", "row:{id}", "row", "enforce", "reject", "many", "check", True)]


def test_protecting_twice_changes_nothing(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    first = guard(db), db.execute(TRIGGERS), traces(db)
    protect(db, t, "row:{id}")
    assert (guard(db), db.execute(TRIGGERS), traces(db)) == first


def test_a_parameter_left_null_keeps_its_value(db: Database, t: str) -> None:
    protect(db, t, "row:{id}", p_expiry="until_superseded")
    protect(db, t, "other:{id}")
    db.execute("select fence.set_mode('public.t', 'enforce')")
    assert guard(db)[0][1:5] == ("other:{id}", "row", "enforce", "until_superseded")
    protect(db, t, "other:{id}", p_expiry="reject")
    assert guard(db)[0][4] == "reject"


@pytest.mark.parametrize(
    ("first", "second", "resource"),
    [("row:{id}", "nightly", "nightly"), ("nightly", "row:{id}", "row:1"), ("row:{id}", "t:{tenant}", "t:a")],
)
def test_a_change_of_scope_leaves_nothing_of_the_old_one(
    db: Database, t: str, first: str, second: str, resource: str
) -> None:
    protect(db, t, first)
    protect(db, t, second)
    changed = db.execute(TRIGGERS)
    assert writes(db, resource, "update public.t set body = 'new' where id = 1") == 1
    with sqlstate("LF004"):
        db.execute("truncate public.t")
    db.execute("select fence.unprotect('public.t')")
    protect(db, t, second)
    assert sorted(db.execute(TRIGGERS)) == sorted(changed)
    assert {state for _, state in changed} == {"A"}


def test_the_guard_changes_for_sessions_with_cached_plans(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    writer = db.connect("app")
    row, tenant = acquire(db, "row:1"), acquire(db, "t:a")
    update = "update public.t set body = 'new' where id = 1"
    for _ in range(7):
        present(writer, row)
        assert writer.execute(update, prepare=True).rowcount == 1
        writer.rollback()
    protect(db, t, "t:{tenant}")
    present(writer, row)
    with sqlstate("LF005"):
        writer.execute(update)
    writer.rollback()
    db.execute("alter table public.t add column more int default 1, drop column body")
    db.execute("alter table public.t add column body text")
    present(writer, tenant)
    assert writer.execute(update).rowcount == 1
    with sqlstate("LF005"):
        writer.execute("update public.t set body = 'new'")


def test_unprotect_leaves_nothing(db: Database, t: str) -> None:
    before = traces(db), contents(db, t)
    for resource in ("row:{id}", "nightly"):
        protect(db, t, resource)
        db.execute("select fence.unprotect('public.t')")
        assert (traces(db), contents(db, t)) == before
    db.execute("update public.t set body = 'new'", user="outsider")
    for call in ("unprotect('public.t')", "set_mode('public.t', 'enforce')"):
        with sqlstate("LF010") as refused:
            db.execute(f"select fence.{call}")
        check_refusal(refused.diag, table="t")


def test_a_table_that_becomes_a_part_of_another_while_protect_waits_is_refused(db: Database) -> None:
    db.execute("create table public.part (id int not null, body text)")
    db.execute("create table public.top (id int not null, body text) partition by list (id)")
    attaching, protecting = db.connect("app_owner"), db.connect("app_owner")
    attaching.execute("alter table public.top attach partition public.part for values in (1)")
    waiting = db.start_blocked(protecting, "select fence.protect('public.part', 'part:{id}')", by=attaching)
    attaching.commit()
    with sqlstate("LF010") as refused:
        waiting.result(20)
    assert "public.top" in refused.diag.message_hint
    protecting.rollback()
    assert db.execute("select table_name from fence.protected_tables") == []


def test_a_rolled_back_protect_leaves_nothing(db: Database, t: str) -> None:
    before = traces(db)
    owner = db.connect("app_owner")
    owner.execute("select fence.protect('public.t', 'row:{id}')")
    owner.rollback()
    assert traces(db) == before
    db.execute("update public.t set body = 'new'", user="outsider")


def test_a_table_protects_while_its_frozen_names_stay(db: Database, t: str) -> None:
    protect(db, t, "{@schema}.{@table}:{id}")
    db.execute("alter table public.t rename to u")
    assert writes(db, "public.t:1", "update public.u set body = 'new' where id = 1") == 1
    with sqlstate("LF004") as refused:
        db.execute("update public.u set body = 'new'", user="outsider")
    assert refused.diag.table_name == "u"
    protect(db, "public.u", "{@schema}.{@table}:{id}")
    assert writes(db, "public.t:1", "update public.u set body = 'new' where id = 1") == 1
    db.execute("create schema s authorization app_owner", user="postgres")
    db.execute("alter table public.u set schema s")
    with sqlstate("LF004"):
        db.execute("delete from s.u")
    db.execute("select fence.unprotect('s.u')")


def test_a_table_made_anew_under_the_name_is_a_new_table(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    db.execute("drop table public.t")
    assert guard(db)[0][0] is None
    assert guard(db)[0][-1] is False
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old')")
    with sqlstate("LF010"):
        db.execute("select fence.set_mode('public.t', 'enforce')")
    protect(db, t, "t:{tenant}")
    assert [row[1] for row in guard(db)] == ["t:{tenant}"]
    assert len(traces(db)["functions"]) == 1
    assert writes(db, "t:a", "update public.t set body = 'new'") == 1


def test_a_renamed_key_column_refuses_every_write(db: Database, t: str) -> None:
    """Which column names the resource now, nobody can know."""
    protect(db, t, "row:{id}")
    db.execute("alter table public.t rename column id to number")
    connection = db.connect("app")
    present(connection, acquire(db, "row:1"))
    with pytest.raises(psycopg.DatabaseError):
        connection.execute("update public.t set body = 'new' where number = 1")
    connection.rollback()
    protect(db, t, "row:{number}")
    db.execute("select fence.revoke('row:1', 'test')")
    assert writes(db, "row:1", "update public.t set body = 'new' where number = 1") == 1


def test_a_key_column_can_be_neither_retyped_nor_dropped(db: Database, t: str) -> None:
    protect(db, t, "t:{tenant}")
    with pytest.raises(psycopg.DatabaseError):
        db.execute("alter table public.t alter tenant type varchar(5)")
    with pytest.raises(psycopg.DatabaseError):
        db.execute("alter table public.t drop column tenant")
    db.execute("alter table public.t drop column tenant cascade")
    assert guard(db)[0][-1] is False
    connection = db.connect("app")
    present(connection, acquire(db, "t:a"))
    with pytest.raises(psycopg.DatabaseError):
        connection.execute("update public.t set body = 'new'")


def test_two_tables_are_guarded_apart(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key, body text)")
    db.execute("insert into public.u values (1, 'old')")
    protect(db, t, "row:{id}")
    protect(db, "public.u", "nightly")
    db.execute("select fence.unprotect('public.t')")
    with sqlstate("LF004"):
        db.execute("update public.u set body = 'new'")
    assert len(guard(db)) == 1


def test_an_unlogged_table_is_a_table(db: Database) -> None:
    db.execute("create unlogged table public.t (id int primary key)")
    protect(db, "public.t", "nightly")
    with sqlstate("LF004"):
        db.execute("insert into public.t values (1)")


# -- what it refuses ---------------------------------------------------------------------------------------------------

NOT_TABLES = {
    "view": ("create view public.x as select 1 as id", "public.x"),
    "materialized view": ("create materialized view public.x as select 1 as id", "public.x"),
    "temporary table": ("create temp table x (id int)", "pg_temp.x"),
    "partition": (
        "create table public.p (id int) partition by range (id); "
        "create table public.x partition of public.p for values from (1) to (9)",
        "public.x",
    ),
    "inheritance child": ("create table public.p (id int); create table public.x () inherits (public.p)", "public.x"),
    "sequence": ("create sequence public.x", "public.x"),
    "index": ("create table public.p (id int); create index x on public.p (id)", "public.x"),
    "composite type": ("create type public.x as (id int)", "public.x"),
    "system table": ("select", "pg_catalog.pg_class"),
    "information schema": ("select", "information_schema.sql_features"),
    "pyfence's table": ("select", "fence._lease"),
    "pyfence's view": ("select", "fence.leases"),
}


@pytest.mark.parametrize("kind", list(NOT_TABLES))
def test_only_ordinary_tables_are_protected(db: Database, kind: str) -> None:
    make, name = NOT_TABLES[kind]
    db.execute(make)
    before = traces(db)
    with sqlstate("LF010") as refused:
        db.execute("select fence.protect(%s, 'row:{id}')", (name,))
    check_refusal(refused.diag, table=name.split(".")[1], schema=refused.diag.schema_name)
    assert traces(db) == before


def test_a_foreign_table_is_refused(db: Database) -> None:
    db.execute("create foreign data wrapper w", user="postgres")
    db.execute("create server s foreign data wrapper w", user="postgres")
    db.execute("grant usage on foreign server s to app_owner", user="postgres")
    db.execute("create foreign table public.x (id int) server s")
    with sqlstate("LF010"):
        protect(db, "public.x", "row:{id}")


def test_no_table_at_all_is_refused(db: Database) -> None:
    with sqlstate("LF010") as refused:
        db.execute("select fence.protect(null, 'x')")
    check_refusal(refused.diag)
    assert "no table was named" in refused.diag.message_detail
    with sqlstate("LF010") as refused:
        db.execute("select fence.protect(4000000000::oid::regclass, 'x')")
    check_refusal(refused.diag)
    with sqlstate("42P01"):
        protect(db, "public.nowhere", "x")


def test_who_does_not_own_the_table_is_refused(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    before = guard(db)
    db.execute("create role other_owner login", user="postgres")
    try:
        for (statement,) in db.execute("select fence._role_grants('other_owner', 'admin')", user="fence_owner"):
            db.execute(statement, user="fence_owner")
        db.execute("grant usage on schema public to other_owner", user="postgres")
        for grant in ("select on public.t", "all on public.t"):
            db.execute(f"grant {grant} to other_owner")
            for call in ("protect('public.t', 'mine')", "set_mode('public.t', 'enforce')", "unprotect('public.t')"):
                with sqlstate("42501"):
                    db.execute(f"select fence.{call}", user="other_owner")
        calls = (
            by_hand(db, "_define_guard", "'public.t'", "'mine'"),
            "select fence._undefine_guard('public.t')",
            "select fence._end_exemption('public.t', 'app')",
            "select fence.exempt('public.t', 'other_owner', now() + interval '1 h', 'mine')",
        )
        for call in calls:
            with sqlstate("42501") as refused:
                db.execute(call, user="other_owner")
            check_refusal(refused.diag, table="t")
        assert guard(db) == before
        for user in ("app", "outsider", "monitor"):
            with sqlstate("42501"):
                db.execute("select fence.protect('public.t', 'mine')", user=user)
    finally:
        db.execute("drop owned by other_owner", user="postgres")
        db.execute("drop role other_owner", user="postgres")


def test_a_member_of_the_owner_may_act_for_it(db: Database, t: str) -> None:
    db.execute("create role deputy login in role app_owner", user="postgres")
    try:
        db.execute("select fence.protect('public.t', 'row:{id}')", user="deputy")
        assert guard(db)[0][-1] is True
        db.execute("select fence.unprotect('public.t')", user="deputy")
    finally:
        for connection in db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'deputy'", user="postgres"
        ):
            assert connection
        db.execute("drop owned by deputy", user="postgres")
        db.execute("drop role deputy", user="postgres")


def test_rows_that_belong_to_nobody_are_refused_before_the_guard(db: Database, t: str) -> None:
    db.execute("insert into public.t values (3, null, 'old')")
    before = traces(db)
    with sqlstate("LF010") as refused:
        protect(db, t, "t:{tenant}")
    check_refusal(refused.diag, table="t")
    assert traces(db) == before
    protect(db, t, "row:{id}")
    kept = guard(db)
    with sqlstate("LF010"):
        protect(db, t, "t:{tenant}")
    assert guard(db) == kept


@pytest.mark.parametrize(
    "options",
    [{"p_mode": "off"}, {"p_mode": ""}, {"p_expiry": "never"}, {"p_writes": "twice"}, {"p_inserts": "no"}],
    ids=str,
)
def test_unknown_choices_are_refused(db: Database, t: str, options: dict[str, Any]) -> None:
    with sqlstate("LF010") as refused:
        protect(db, t, "row:{id}", **options)
    check_refusal(refused.diag)
    assert traces(db)["triggers"] == []


NO_TEMPLATES = [
    *(
        None,
        "",
        "{",
        "}",
        "a{",
        "a}",
        "{}",
        "{id",
        "id}",
        "{{id}",
        "{id}}",
        "{i{d}}",
        "{nowhere}",
        "{ID}",
        '{"id"}',
        "{id }",
    ),
    *("{@nothing}", "a{{b}}", "x" * 1025, "x" * 1020 + "{{{{{{", "{ctid}", "{tableoid}", "{xmin}", "{id:d}", "{0}"),
]


@pytest.mark.parametrize("template", NO_TEMPLATES, ids=lambda template: str(template)[:20])
def test_templates_that_name_no_resource_are_refused(db: Database, t: str, template: str | None) -> None:
    before = traces(db)
    with sqlstate("LF010") as refused:
        protect(db, t, template)  # type: ignore[arg-type]
    check_refusal(refused.diag, schema=refused.diag.schema_name, table=refused.diag.table_name or "")
    assert traces(db) == before
    db.execute("update public.t set body = 'new'", user="outsider")


# -- other sessions ----------------------------------------------------------------------------------------------------


def test_protect_waits_for_open_writers(db: Database, t: str) -> None:
    writer, owner = db.connect("outsider"), db.connect("app_owner")
    writer.execute("update public.t set body = 'new' where id = 1")
    waiting = db.start_blocked(owner, "select fence.protect('public.t', 'row:{id}')", by=writer)
    writer.commit()
    waiting.result(10)
    owner.commit()
    with sqlstate("LF004"):
        writer.execute("update public.t set body = 'newer' where id = 1")


@pytest.mark.parametrize(
    "call",
    [
        "protect('public.t', 'nightly')",
        pytest.param("set_mode('public.t', 'enforce')", marks=pytest.mark.full),
        pytest.param("unprotect('public.t')", marks=pytest.mark.full),
    ],
)
def test_a_busy_table_is_given_up_on_and_left_as_it_was(db: Database, t: str, call: str) -> None:
    """Five tries of a second; between them the writers behind get through."""
    protect(db, t, "row:{id}")
    before = guard(db), db.execute(TRIGGERS), traces(db)
    reader = db.connect("postgres")
    reader.execute("lock table public.t in row exclusive mode")
    owner, writer = db.connect("app_owner"), db.connect("app")
    waiting = db.start_blocked(owner, f"select fence.{call}", by=reader)
    present(writer, acquire(db, "row:1"))
    assert writer.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    writer.commit()
    with sqlstate("55P03") as refused:
        waiting.result(12)
    check_refusal(refused.diag, table="t")
    owner.rollback()
    reader.rollback()
    assert (guard(db), db.execute(TRIGGERS), traces(db)) == before


def test_an_old_snapshot_does_not_see_past_a_new_guard(db: Database, t: str, isolation: psycopg.IsolationLevel) -> None:
    writer = db.connect("app", isolation=isolation)
    writer.execute("select 1 from public.t")
    writer.commit()
    writer.execute("select 1")  # the snapshot is older than the guard, the table is not locked
    protect(db, t, "row:{id}")
    with sqlstate("LF004"):
        writer.execute("update public.t set body = 'new' where id = 1")
    writer.rollback()
    lease = acquire(db, "row:1")
    writer.execute("select 1")
    db.execute("select fence.protect('public.t', 't:{tenant}')")
    present(writer, lease)
    with sqlstate("LF005"):
        writer.execute("update public.t set body = 'new' where id = 1")


@pytest.mark.parametrize("second", ["row:{id}", "nightly"])
def test_two_owners_who_protect_at_once_make_one_guard(db: Database, t: str, second: str) -> None:
    one, two = db.connect("app_owner"), db.connect("app_owner")
    one.execute("select fence.protect('public.t', 'row:{id}')")
    waiting = db.start_blocked(two, f"select fence.protect('public.t', '{second}')", by=one)
    one.commit()
    waiting.result(10)
    two.commit()
    assert [row[-1] for row in guard(db)] == [True]
    found = traces(db)
    assert len(found["functions"]) == len(found["registry"]) == 1
    assert (
        writes(db, "nightly" if guard(db)[0][2] == "table" else "row:1", "update public.t set body = 'x' where id = 1")
        == 1
    )


@pytest.mark.parametrize("change", ["fence.protect('public.t', 'tenant:{tenant}')", "fence.unprotect('public.t')"])
def test_set_mode_knows_what_it_has_waited_for(db: Database, change: str) -> None:
    """It keeps the template, and so has to read it when nobody else can change it."""
    db.execute("create table public.t (id int primary key, tenant int not null)")
    protect(db, "public.t", "row:{id}", p_writes="once")
    first, second = db.connect("app_owner"), db.connect("app_owner")
    first.execute(f"select {change}")
    waiting = db.start_blocked(second, "select fence.set_mode('public.t', 'enforce')", by=first)
    first.commit()
    if "unprotect" in change:
        with sqlstate("LF010"):
            waiting.result(10)
        assert db.execute("select from fence.protected_tables") == []
    else:
        waiting.result(10)
        second.commit()
        assert db.execute("select resource from fence.protected_tables") == [("tenant:{tenant}",)]


@pytest.mark.parametrize("call", ["protect('public.t', 'nightly')", "unprotect('public.t')"])
def test_guards_are_changed_at_read_committed(
    db: Database, t: str, call: str, isolation: psycopg.IsolationLevel
) -> None:
    """An older snapshot would not see the guard that another session has just made, and make a second one."""
    protect(db, t, "row:{id}")
    before = guard(db)
    connection = db.connect("app_owner", isolation=isolation)
    if isolation is psycopg.IsolationLevel.READ_COMMITTED:
        connection.execute(f"select fence.{call}")
        return
    with sqlstate("LF010") as refused:
        connection.execute(f"select fence.{call}")
    check_refusal(refused.diag, table="t")
    connection.rollback()
    assert guard(db) == before


def test_two_owners_who_unprotect_at_once(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    one, two = db.connect("app_owner"), db.connect("app_owner")
    one.execute("select fence.unprotect('public.t')")
    waiting = db.start_blocked(two, "select fence.unprotect('public.t')", by=one)
    one.commit()
    try:
        waiting.result(10)
        two.commit()
    except psycopg.DatabaseError as error:
        assert error.sqlstate == "LF010"  # noqa: PT017
        two.rollback()
    assert traces(db)["triggers"] == traces(db)["functions"] == traces(db)["registry"] == []
    events = db.execute("select event from fence.history where event = 'unprotected'")
    assert len(events) == 1


def test_the_history_tells_who_changed_a_guard(db: Database, t: str) -> None:
    protect(db, t, "row:{id}")
    protect(db, t, "nightly")
    db.execute("select fence.unprotect('public.t')")
    rows: list[Any] = db.execute("select event, role from fence.history order by id")
    assert [event for event, _ in rows] == ["protected", "guard changed", "unprotected"]
    assert {role for _, role in rows} == {"app_owner"}


def test_no_guard_waits_for_the_registry(db: Database, t: str) -> None:
    """What accepts and refuses writes never reads it: whoever locks it stops none."""
    protect(db, t, "row:{id}")
    lease, keeper, connection = acquire(db, "row:1"), db.connect("postgres"), db.connect("app")
    connection.execute("set statement_timeout = '5s'")
    keeper.execute("lock table fence._guard, fence._history in access exclusive mode")
    forge(connection, lease)  # as present would, which asks it what covers the resource
    assert connection.execute("update public.t set body = 'new' where id = 1").rowcount == 1


def test_a_function_left_by_a_schema_only_restore_keeps_its_number(db: Database, t: str) -> None:
    """Its registry row is not there, but another table's triggers may call it."""
    protect(db, t, "row:{id}")
    db.execute("delete from fence._guard", user="fence_owner")
    db.execute("select setval(pg_get_serial_sequence('fence._guard', 'id'), 1, false)", user="fence_owner")
    source = "select prosrc from pg_proc where oid = 'fence._guard_1()'::regprocedure"
    before = db.execute(source)
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "nightly")
    assert db.execute(source) == before
    with sqlstate("LF004"):
        db.execute("update public.t set body = 'new'")
    assert db.execute("select id from fence._guard", user="fence_owner") == [(2,)]


def test_a_guard_that_lost_its_triggers_is_not_forgotten_with_others(db: Database, t: str) -> None:
    """What protect and unprotect sweep up is what no table needs: repair() can still arm this one."""
    protect(db, t, "row:{id}")
    triggers = "select tgname from pg_trigger where tgrelid = 'public.t'::regclass and tgname like '%0_fence_%'"
    for (name,) in db.execute(triggers):
        db.execute(f'drop trigger "{name}" on public.t')
    db.execute("create table public.p (id int primary key) partition by list (id)")
    db.execute("create table public.p1 partition of public.p for values in (1)")
    protect(db, "public.p", "p:{id}")
    db.execute("select fence.unprotect('public.p')")
    guard = "select table_name, fence._guard_function(id) is not null from fence._guard"
    assert db.execute(guard, user="fence_owner") == [("t", True)]
    db.execute("select from fence.repair()")
    with sqlstate("LF004"):
        db.execute("update public.t set body = 'new'")


def test_functions_are_made_anew_for_tables_that_are_there_and_have_one(db: Database, t: str) -> None:
    """The others are passed by, without a word: the audit names them."""
    for table in ("t", "dropped", "bare"):
        db.execute(f"create table if not exists public.{table} (id int primary key)")
        protect(db, f"public.{table}", table + ":{id}")
    db.execute("drop table public.dropped")
    owner, notices = db.connect("fence_owner", autocommit=True), list[str]()
    owner.add_notice_handler(lambda diag: notices.append(str(diag.message_primary)))
    owner.execute(
        "set client_min_messages = warning; drop function fence._guard_3() cascade; reset client_min_messages"
    )
    assert owner.execute("select fence._renew_guard_functions()").fetchall() == [(1,)]
    assert notices == []
    assert owner.execute("select to_regprocedure('fence._guard_3()')").fetchall() == [(None,)]
