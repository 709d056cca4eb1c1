"""Attempts to run code with the rights of the schema's owner, or to have pyfence look at the wrong thing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, by_hand, contents, forge, present, protect
from harness import Connection, Database, sqlstate
from psycopg.types.json import Jsonb


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, name text, body text)")
    db.execute("insert into public.report values (1, 'a', 'old'), (2, 'b', 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


@pytest.fixture
def loot(db: Database) -> list[str]:
    """Every role that public.evil() has run as. Its functions say it aloud, so that no rollback hides it."""
    db.execute(
        """
        create function public.evil(text default '') returns int language plpgsql as
          $$ begin raise notice 'ran as %', current_user; return 1; end $$;
        create function public.evil_text(anyelement) returns text language plpgsql as
          $$ begin raise notice 'ran as %', current_user; return 'x'; end $$;
        create function public.evil_bool(anyelement, anyelement) returns boolean language plpgsql as
          $$ begin raise notice 'ran as %', current_user; return true; end $$;
        grant execute on all functions in schema public to public;
        """
    )
    return []


def listen(connection: Connection, loot: list[str]) -> Connection:
    connection.add_notice_handler(lambda diag: loot.append(str(diag.message_primary)))
    return connection


def attempt(connection: Connection, *statements: str) -> None:
    """Run each, whatever comes of it."""
    for statement in statements:
        with suppress(psycopg.Error):
            connection.execute(statement)


def owned(loot: list[str]) -> list[str]:
    return [line for line in loot if line == "ran as fence_owner"]


EVENTS = ["insert", "update", "delete", "truncate"]


@pytest.mark.parametrize("relation", ["fence_rows", "fence_old_rows", "both"])
def test_a_guard_without_its_rows_reads_no_other(db: Database, report: str, loot: list[str], relation: str) -> None:
    """A table's owner may attach the guard's function anywhere; without transition tables the names are free."""
    owner = listen(db.connect("app_owner", autocommit=True), loot)
    for name in ("fence_rows", "fence_old_rows") if relation == "both" else (relation,):
        owner.execute(f"create temp view {name} as select public.evil(x::text) as id from generate_series(1, 2) x")
        owner.execute(f"grant select on pg_temp.{name} to public")
    ((temp,),) = owner.execute("select nspname from pg_namespace where oid = pg_my_temp_schema()").fetchall()
    attempt(owner, f'grant usage on schema "{temp}" to public')
    owner.execute("create table public.m (id int primary key)")
    for event in EVENTS:
        for when in ("before", "after"):
            attempt(
                owner,
                f"create trigger {when}_{event} {when} {event} on public.m for each statement "
                "execute function fence._guard_1()",
            )
    owner.execute("set fence.claims = 'x'")
    attempt(
        owner,
        "insert into public.m values (1)",
        "update public.m set id = 2",
        "delete from public.m",
        "truncate public.m",
    )
    for event in EVENTS:
        attempt(owner, f"drop trigger before_{event} on public.m")
    attempt(owner, "insert into public.m values (1)", "update public.m set id = 2", "delete from public.m")
    assert owned(loot) == []
    # and the guard of the true table still reads its own rows
    connection = db.connect("app")
    connection.execute("create temp view fence_rows as select 2 as id")
    connection.execute("grant select on pg_temp.fence_rows to public")
    present(connection, acquire(db, "report:2"))
    with pytest.raises(psycopg.DatabaseError):
        connection.execute("update public.report set body = 'new' where id = 1")


@pytest.mark.parametrize("kind", ["domain", "composite", "range", "enum", "array of domains", "function as column"])
def test_a_key_column_of_another_type_runs_no_code(db: Database, report: str, loot: list[str], kind: str) -> None:
    """The function was made for an integer; its owner swaps columns, or attaches it elsewhere."""
    owner = listen(db.connect("app_owner", autocommit=True), loot)
    owner.execute(
        """
        create domain public.bad as text check (public.evil(value) = 1);
        create type public.pair as (a public.bad, b int);
        create type public.mood as enum ('1', '2');
        create type public.span as range (subtype = text);
        create function public.to_text(public.mood) returns text language sql as 'select public.evil_text(1)';
        create cast (public.mood as text) with function public.to_text(public.mood) as implicit;
        create function public.pair_text(public.pair) returns text language sql as 'select public.evil_text(1)';
        create cast (public.pair as text) with function public.pair_text(public.pair) as implicit;
        create function public.pair_eq(public.pair, public.pair) returns boolean language sql as
          $$ select public.evil_bool(1, 1) $$;
        create operator public.= (function = public.pair_eq, leftarg = public.pair, rightarg = public.pair);
        create operator public.|| (function = public.pair_eq, leftarg = public.pair, rightarg = public.pair);
        create function public.concat(public.pair) returns text language sql as 'select public.evil_text(1)';
        """
    )
    column, value = {
        "domain": ("id public.bad", "'1'"),
        "composite": ("id public.pair", "row('x', 1)"),
        "range": ("id public.span", "'[a,b]'"),
        "enum": ("id public.mood", "'1'"),
        "array of domains": ("id public.bad[]", "array['x']::public.bad[]"),
        "function as column": ("other int", "1"),
    }[kind]
    owner.execute(f"create table public.m ({column})")
    if kind == "function as column":
        owner.execute("create function public.id(public.m) returns int language sql as $$ select public.evil('') $$")
        owner.execute(
            "create function public.id(record) returns int language plpgsql as $$ begin return public.evil(''); end $$"
        )
    for event, rows in (("insert", "new"), ("update", "new"), ("delete", "old")):
        owner.execute(
            f"create trigger s_{event} after {event} on public.m referencing {rows} table as fence_rows "
            "for each statement execute function fence._guard_1()"
        )
    owner.execute("create trigger r after update on public.m for each row execute function fence._guard_1()")
    owner.execute("set search_path = public")
    owner.execute("set fence.claims = 'x'")
    attempt(owner, f"insert into public.m values ({value})")
    owner.execute("alter table public.m disable trigger user")
    owner.execute(f"insert into public.m values ({value})")
    owner.execute("alter table public.m enable trigger user")
    loot.clear()
    attempt(
        owner, "update public.m set ctid = ctid", f"update public.m as x set {column.split()[0]} = {column.split()[0]}"
    )
    attempt(owner, "delete from public.m")
    assert owned(loot) == []
    # the same by swapping columns of the protected table itself
    owner.execute(
        f"alter table public.report rename column id to was_id; alter table public.report add column {column}"
    )
    loot.clear()
    attempt(owner, "update public.report set body = 'x'", "delete from public.report")
    assert owned(loot) == []


@pytest.mark.parametrize("kind", ["domain", "enum", "retyped"])
def test_a_token_column_of_another_type_runs_no_code(db: Database, loot: list[str], kind: str) -> None:
    """The guard writes to this column itself: with whose casts?"""
    owner = listen(db.connect("app_owner", autocommit=True), loot)
    owner.execute(
        """
        create table public.report (id int primary key, body text, token bigint);
        insert into public.report values (1, 'old', 0);
        select fence.protect('public.report', 'report:{id}', p_token_column => 'token');
        create domain public.bad as bigint check (public.evil(value::text) = 1);
        create type public.mood as enum ('1', '2');
        create function public.to_number(public.mood) returns bigint language plpgsql as
          $$ begin perform public.evil(); return 1; end $$;
        create function public.from_number(bigint) returns public.mood language plpgsql as
          $$ begin perform public.evil(); return '1'; end $$;
        create cast (public.mood as bigint) with function public.to_number(public.mood) as implicit;
        create cast (bigint as public.mood) with function public.from_number(bigint) as assignment;
        """
    )
    lease = acquire(db, "report:1")
    if kind == "retyped":
        attempt(owner, "alter table public.report alter token type public.bad")
        statement = "update public.report set body = 'new'"
    else:
        owner.execute(f"create table public.m (id int, token {'public.bad' if kind == 'domain' else 'public.mood'})")
        owner.execute(
            'create trigger "~0_fence_stamp" before insert on public.m for each row execute function fence._guard_1()'
        )
        statement = "insert into public.m values (1, '1')"
    loot.clear()
    with owner.transaction():
        present(owner, lease)
        attempt(owner, statement)
    assert owned(loot) == []


@pytest.mark.parametrize("kind", ["domain", "composite", "enum"])
def test_protect_runs_nothing_of_the_types_it_looks_at(db: Database, loot: list[str], kind: str) -> None:
    owner = listen(db.connect("app_owner", autocommit=True), loot)
    owner.execute(
        """
        create domain public.bad as text check (public.evil(value) = 1);
        create type public.pair as (a public.bad, b int);
        create type public.mood as enum ('1', '2');
        create function public.to_text(public.mood) returns text language sql as 'select public.evil_text(1)';
        create cast (public.mood as text) with function public.to_text(public.mood) as implicit;
        """
    )
    column = {"domain": "public.bad", "composite": "public.pair", "enum": "public.mood"}[kind]
    owner.execute(f"create table public.m (id int primary key, k {column}, body text)")
    attempt(owner, "select fence.protect('public.m', 'm:{k}')")
    owner.execute("set fence.claims = 'x'")
    attempt(owner, "insert into public.m values (1, '1')", "update public.m set k = '2'", "delete from public.m")
    assert owned(loot) == []


def test_hostile_names_in_the_callers_path_are_not_called(db: Database, report: str, loot: list[str]) -> None:
    """Functions, operators, types and tables of a schema that comes before pg_catalog."""
    db.execute("create schema trap authorization app_owner", user="postgres")
    owner = listen(db.connect("app_owner", autocommit=True), loot)
    owner.execute(
        """
        create function trap.current_setting(text, boolean) returns text language sql as 'select public.evil_text(1)';
        create function trap.set_config(text, text, boolean) returns text language sql as 'select public.evil_text(1)';
        create function trap.clock_timestamp() returns timestamptz language plpgsql as
          $$ begin perform public.evil(); return 'epoch'; end $$;
        create function trap.now() returns timestamptz language sql as $$ select trap.clock_timestamp() $$;
        create function trap.sha256(bytea) returns bytea language sql as 'select public.evil_text(1)::bytea';
        create function trap.split_part(text, text, int) returns text language sql as 'select public.evil_text(1)';
        create function trap.encode(bytea, text) returns text language sql as 'select public.evil_text(1)';
        create function trap.convert_to(text, text) returns bytea language sql as 'select public.evil_text(1)::bytea';
        create function trap.format(text, variadic text[]) returns text language sql as 'select public.evil_text(1)';
        create function trap.quote_ident(text) returns text language sql as 'select public.evil_text(1)';
        create function trap.octet_length(text) returns int language sql as $$ select public.evil('') $$;
        create function trap.starts_with(text, text) returns boolean language sql as $$select public.evil('') = 1$$;
        create function trap.jsonb_to_record(jsonb) returns record language sql as $$ select public.evil(''), 1 $$;
        create function trap.eq(text, text) returns boolean language sql as $$select public.evil('') = 1$$;
        create operator trap.= (function = trap.eq, leftarg = text, rightarg = text);
        create operator trap.<> (function = trap.eq, leftarg = text, rightarg = text);
        create function trap.eq(bigint, bigint) returns boolean language sql as $$select public.evil('') = 1$$;
        create operator trap.= (function = trap.eq, leftarg = bigint, rightarg = bigint);
        create function trap.eq(int, int) returns boolean language sql as $$select public.evil('') = 1$$;
        create operator trap.= (function = trap.eq, leftarg = int, rightarg = int);
        create operator trap.> (function = trap.eq, leftarg = int, rightarg = int);
        create function trap.eq(jsonb, text) returns boolean language sql as $$select public.evil('') = 1$$;
        create operator trap.? (function = trap.eq, leftarg = jsonb, rightarg = text);
        create function trap.glue(text, text) returns text language sql as 'select public.evil_text(1)';
        create operator trap.|| (function = trap.glue, leftarg = text, rightarg = text);
        create domain trap.text as pg_catalog.text check (public.evil('') = 1);
        create domain trap.jsonb as pg_catalog.jsonb check (public.evil('') = 1);
        create table trap.pg_class as select * from pg_catalog.pg_class limit 0;
        create table trap._lease (resource text, token bigint);
        grant usage on schema trap to public;
        grant execute on all functions in schema trap to public;
        grant select on all tables in schema trap to public;
        """
    )
    lease = acquire(db, "report:1")
    victim = listen(db.connect("app", search_path="trap,public,pg_catalog"), loot)
    present(victim, lease)
    victim.execute("update report set body = 'new' where id operator(pg_catalog.=) 1")
    with sqlstate("LF005"), victim.transaction():
        victim.execute("update report set body = 'new' where id operator(pg_catalog.=) 2")
    for call in (
        "select fence.fenced_update('public.report', %s, %s, %s, %s, %s)",
        "select fence.renew_all(array[%s], array[%s::bigint], array[%s], '30 s')",
        "select fence.renew(%s, %s, %s)",
        "select fence.release(%s, %s, %s)",
    ):
        parameters: list[Any] = [*lease.parameters]
        if "fenced" in call:
            parameters = [Jsonb({"id": 1}), Jsonb({"body": "new", "name": "n"}), *parameters]
        loot.clear()
        victim.execute(call, parameters)
        if "%s::" not in call:
            assert loot == [], call
    victim.commit()
    listen(db.connect("app_owner", autocommit=True, search_path="trap,public,pg_catalog"), loot)
    loot.clear()
    admin = listen(db.connect("app_owner", autocommit=True, search_path="trap,public,pg_catalog"), loot)
    admin.execute("select fence.protect('public.report', 'report:{id}')")
    admin.execute("select fence.resource_for('public.report', '{\"id\": 1}'::pg_catalog.jsonb)")
    admin.execute("select fence.revoke('report:1', 'x')")
    admin.execute("select fence.unprotect('public.report')")
    assert loot == []


RELATIONS = ["_lease", "lease", "_authority", "_guard", "_history", "pg_class", "pg_trigger", "pg_proc", "pg_attribute",
             "pg_type", "leases", "d", "r", "j", "pg_index"]  # fmt: skip


def test_temporary_objects_stand_in_for_nothing(db: Database, report: str) -> None:
    """pg_temp is searched first for relations, unless it is named last."""
    stale = acquire(db, "report:1")
    ask = db.connect("app", search_path="")
    for name in RELATIONS:
        ask.execute(f"create temp table {name} (resource text, token bigint, secret_hash bytea, owner text, id int)")
        ask.execute(f"insert into pg_temp.{name} values ('report:1', 9999, sha256('x'), 'me', 1)")
        ask.execute(f"grant all on pg_temp.{name} to public")
    ask.commit()
    forge(ask, Lease("report:1", 9999, "x"))
    with sqlstate("LF001" if stale.token > 9999 else "LF006"):
        ask.execute("update public.report set body = 'new' where id = 1")
    ask.rollback()
    with sqlstate("LF004"):
        ask.execute("update public.report set body = 'new' where id = 1")
    ask.rollback()
    present(ask, stale)
    assert ask.execute("update public.report set body = 'new' where id = 1").rowcount == 1
    parameters = (Jsonb({"id": 1}), Jsonb({"body": "b"}), *stale.parameters)
    assert ask.execute("select fence.fenced_update('public.report', %s, %s, %s, %s, %s)", parameters).fetchall() == [
        (1,)
    ]
    assert ask.execute("select fence.resource_for('public.report', '{\"id\": 1}')").fetchall() == [("report:1",)]
    ask.commit()


@pytest.mark.parametrize("path", ["''", "pg_catalog", "public", "pg_temp", "nowhere", "fence", '"$user", public'])
def test_any_search_path_will_do(db: Database, report: str, path: str) -> None:
    """Dumps are restored with an empty one."""
    lease = acquire(db, "report:1")
    connection = db.connect("app")
    connection.execute(f"set search_path = {path}")
    with sqlstate("LF004"), connection.transaction():
        connection.execute("update public.report set body = 'new' where id = 1")
    present(connection, lease)
    assert connection.execute("update public.report set body = 'new' where id = 1").rowcount == 1
    with sqlstate("LF005"):
        connection.execute("update public.report set body = 'new' where id = 2")


def test_a_guard_on_a_second_table_changes_nothing_of_the_first(db: Database, report: str) -> None:
    """protect and unprotect of the one must not be protect and unprotect of the other."""
    db.execute("create table public.m (id int primary key)")
    db.execute("create trigger t after insert on public.m for each statement execute function fence._guard_1()")
    before = contents(db, "public.report")
    with suppress(psycopg.Error):
        protect(db, "public.m", "mallory")
    thief = db.connect("app")
    present(thief, acquire(db, "mallory"))
    with sqlstate("LF005"):
        thief.execute("update public.report set body = 'stolen'")
    thief.rollback()
    with suppress(psycopg.Error):
        db.execute("select fence.unprotect('public.m')")
    with sqlstate("LF004"):
        db.execute("update public.report set body = 'stolen'")
    assert contents(db, "public.report") == before
    rows = db.execute("select resource, armed from fence.protected_tables where table_name = 'report'")
    assert ("report:{id}", True) in rows


def test_a_copy_that_was_swapped_in_is_guarded_apart(db: Database, report: str) -> None:
    """Made by hand with the same triggers, under the old table's name: each keeps a guard of its own."""
    triggers = db.execute("select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'public.report'::regclass")
    db.execute("alter table public.report rename to report_old")
    db.execute("create table public.report (id int primary key, name text, body text)")
    for (definition,) in triggers:
        db.execute(definition.replace("%", "%%"))
    protect(db, "public.report", "copy:{id}")
    writer = db.connect("app")
    present(writer, acquire(db, "copy:1"))
    with sqlstate("LF005"):
        writer.execute("update public.report_old set body = 'stolen'")
    writer.rollback()
    present(writer, acquire(db, "report:1"))
    assert writer.execute("update public.report_old set body = 'new' where id = 1").rowcount == 1


def test_a_former_owner_cannot_reach_the_guard(db: Database, report: str) -> None:
    db.execute("alter table public.report owner to app", user="postgres")
    db.execute("select fence.protect('public.report', 'report:{id}')", user="postgres")
    db.execute("create table public.m (id int primary key)")
    with sqlstate("42501"):
        db.execute("create trigger t after insert on public.m for each statement execute function fence._guard_1()")


def test_the_guards_function_cannot_be_called(db: Database, report: str) -> None:
    with pytest.raises(psycopg.DatabaseError):
        db.execute("select fence._guard_1()")


def test_private_functions_given_to_administrators_check_for_themselves(db: Database, report: str) -> None:
    """They are called by protect and unprotect, and may be called by hand."""
    for name in ("_define_guard", "_undefine_guard"):
        for user in ("app", "monitor", "outsider"):
            with sqlstate("42501"):
                db.execute(by_hand(db, name, "'public.report'"), user=user)
    db.execute("select fence._drop_unused_functions()")
    with sqlstate("LF004"):
        db.execute("update public.report set body = 'x'")
