"""Statements that are stopped at a number of rows: PostgreSQL fires no trigger after them, but writes their rows."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, contents, expire, forge, present, protect, startup
from harness import SUPERUSER, Connection, Database, sqlstate

ONE = "update public.t set body = 'new' where id = 1 returning id"


def add_language(db: Database) -> None:
    """By its name alone it is one in which a statement could be stopped."""
    db.execute("create language later handler plpgsql_call_handler", user=SUPERUSER)


def make_table(db: Database) -> None:
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old'), (2, 'a', 'old'), (3, 'b', 'old')")
    db.execute("create function public.run(statement text) returns void language plpgsql as 'begin execute $1; end'")


@pytest.fixture
def tcl(db: Database) -> Database:
    """A database with PL/Tcl, the one such language whose library is often there; a function that stops a statement."""
    try:
        db.execute("create extension pltcl", user=SUPERUSER)
    except psycopg.Error as error:
        pytest.skip(f"no PL/Tcl here ({error.diag.message_primary}): no statement was really stopped")
    db.execute(
        "create function public.first(statement text, rows text default '1') returns int "
        "language pltcl as 'spi_exec -count $2 $1'",
        user=SUPERUSER,
    )
    make_table(db)
    return db


def first(connection: Connection, statement: str, rows: int = 1) -> None:
    connection.execute("select public.first(%s, %s)", (statement, str(rows)))


def refused(connection: Connection, statement: str, what: str = "no claim on 'tenant:a'") -> None:
    """PL/Tcl gives errors of its own (38000), with the words of the one that it met."""
    with pytest.raises(psycopg.Error, match=what):
        first(connection, statement)
    connection.rollback()


@pytest.mark.parametrize(
    "statement",
    [
        ONE,
        "delete from public.t where id = 1 returning id",
        "insert into public.t values (9, 'a', 'new') returning id",
        "insert into public.t values (1, 'a', 'new') on conflict (id) do update set body = 'new' returning t.id",
        "merge into public.t using (values (1)) v (n) on id = n when matched then update set body = 'new' returning id",
        "update public.t set tenant = 'a' where id = 3 returning id",
        "update public.t set tenant = 'b' where id = 1 returning id",
    ],
)
def test_none_gets_past_a_row_scope(tcl: Database, statement: str) -> None:
    if statement.startswith("merge") and tcl.cluster.version < 17:
        statement = ONE.replace("= 1", "in (1, 3)")  # MERGE returns nothing before 17
    protect(tcl, "public.t", "tenant:{tenant}")
    before = contents(tcl, "public.t")
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:b"))
    refused(writer, statement)
    outsider = tcl.connect("outsider")
    outsider.execute("select set_config('fence.claims', pg_current_xact_id()::text || chr(10), true)")
    refused(outsider, statement, "no claim on")
    assert contents(tcl, "public.t") == before


def test_a_former_holder_does_not_get_past_its_successor(tcl: Database, isolation: psycopg.IsolationLevel) -> None:
    protect(tcl, "public.t", "tenant:{tenant}")
    old = acquire(tcl, "tenant:a")
    former, holder = tcl.connect("app", options=startup(old), isolation=isolation), tcl.connect("app")
    expire(tcl, "tenant:a")
    present(holder, acquire(tcl, "tenant:a"))
    holder.execute("update public.t set body = 'holder' where id = 2")
    refused(former, ONE, "stale token")
    holder.commit()
    assert contents(tcl, "public.t")[:2] == [(1, "a", "old"), (2, "a", "holder")]


def test_the_holders_statement_may_be_stopped(tcl: Database, isolation: psycopg.IsolationLevel) -> None:
    protect(tcl, "public.t", "tenant:{tenant}")
    lease, writer = acquire(tcl, "tenant:a"), tcl.connect("app", isolation=isolation)
    for rows in (0, 1, 2):
        present(writer, lease)
        first(writer, ONE.replace("id = 1", "tenant = 'a'"), rows)
        writer.commit()
        assert [row[2] for row in contents(tcl, "public.t")].count("new") == (rows or 2)
        present(writer, lease)
        writer.execute("update public.t set body = 'old' where tenant = 'a'")
        writer.commit()


def test_under_a_covering_lease(tcl: Database) -> None:
    protect(tcl, "public.t", "tenant:{tenant}", p_covering="all")
    writer, lease = tcl.connect("app"), acquire(tcl, "all")
    present(writer, lease)
    first(writer, ONE)
    writer.commit()
    forge(writer, Lease("all", lease.token, "x"))
    refused(writer, ONE, "not the holder")


@pytest.mark.parametrize("table", ["root", "leaf", "later leaf", "parent", "child"])
def test_in_a_tree(tcl: Database, table: str) -> None:
    tcl.execute("create table public.child () inherits (public.t)")
    tcl.execute("insert into public.child values (4, 'a', 'old')")
    tcl.execute("create table public.p (id int, tenant text, body text) partition by list (tenant)")
    tcl.execute("create table public.leaf partition of public.p for values in ('a')")
    tcl.execute("insert into public.p values (4, 'a', 'old')")
    for root in ("t", "p"):
        protect(tcl, f"public.{root}", "tenant:{tenant}")
    tcl.execute("create table public.later_leaf partition of public.p for values in ('c')")
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:c"))
    writer.execute("insert into public.later_leaf values (4, 'c', 'old')")
    writer.commit()
    written = {"root": "p", "leaf": "leaf", "later leaf": "later_leaf", "parent": "t", "child": "child"}[table]
    present(writer, acquire(tcl, "tenant:other"))
    refused(writer, f"update public.{written} set body = 'new' where id = 4 returning id", "no claim on 'tenant:[ac]'")


def test_a_child_that_was_made_later(tcl: Database) -> None:
    """It has no row triggers; its rows are the parent's statement's all the same."""
    protect(tcl, "public.t", "tenant:{tenant}")
    tcl.execute("create table public.child () inherits (public.t)")
    tcl.execute("insert into public.child values (4, 'a', 'old')")
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:other"))
    statement = ONE.replace("= 1", "= 4")
    refused(writer, statement, "does not know the language pltcl")
    tcl.execute("select fence.repair('public.t')")
    present(writer, acquire(tcl, "tenant:another"))
    refused(writer, statement)


@pytest.mark.parametrize("rule", ["once", "sequenced"])
@pytest.mark.parametrize("template", ["nightly", "tenant:{tenant}"])
def test_what_is_counted_is_counted(tcl: Database, rule: str, template: str) -> None:
    protect(tcl, "public.t", template, p_writes=rule)
    lease, writer = acquire(tcl, template.replace("{tenant}", "a")), tcl.connect("app")
    numbered = "select fence.present(%s, %s, %s, 1)"
    writer.execute(numbered, lease.parameters)
    first(writer, ONE)
    first(writer, ONE)
    writer.commit()
    writer.execute(numbered, lease.parameters)
    refused(writer, ONE, "applied already")
    writer.execute(numbered, lease.parameters)
    with sqlstate("LF007"):
        writer.execute(ONE)


def test_what_an_exempt_role_stops_is_noted(tcl: Database) -> None:
    protect(tcl, "public.t", "tenant:{tenant}")
    tcl.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')")
    outsider = tcl.connect("outsider")
    forge(outsider, acquire(tcl, "tenant:b"))
    first(outsider, ONE)
    outsider.commit()
    assert tcl.execute("select code, resource from fence.violation_events") == [("LF005", "tenant:a")]


def test_what_is_stopped_on_an_observed_table_is_noted(tcl: Database) -> None:
    protect(tcl, "public.t", "tenant:{tenant}", p_mode="observe")
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:b"))
    first(writer, ONE)
    writer.commit()
    assert tcl.execute("select code, resource from fence.violation_events") == [("LF005", "tenant:a")]


# -- what functions run, in a database with such a language ------------------------------------------------------------


@pytest.fixture
def functions(db: Database) -> Database:
    """A guard whose triggers after the statement are off, as if every statement had been stopped."""
    add_language(db)
    make_table(db)
    protect(db, "public.t", "tenant:{tenant}")
    for event in ("insert", "update", "delete"):
        db.execute(f'alter table public.t disable trigger "0_fence_{event}"')
    return db


#: How a statement gets to be a function's: what is to be made before, and the call.
CALLS = {
    "function": ((), "select public.run($s${}$s$)"),
    "block": ((), "do $b$ begin {}; end $b$"),
    "sql function": (("create function public.sql() returns void language sql as $f$ {} $f$",), "select public.sql()"),
    "deferred trigger": (
        (
            "create table public.u (id int)",
            "create function public.fired() returns trigger language plpgsql as $f$ begin {}; return new; end $f$",
            "create constraint trigger fired after insert on public.u deferrable initially deferred "
            "for each row execute function public.fired()",
        ),
        "insert into public.u values (1)",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_row_that_a_function_writes_is_looked_at(functions: Database, call: str) -> None:
    make, run = CALLS[call]
    writer = functions.connect("app")
    for number, statement in enumerate(
        [
            "update public.t set body = 'new' where id = 1",
            "delete from public.t where id = 1",
            "insert into public.t values (9, 'a', 'new')",
            "update public.t set tenant = 'a' where id = 3",
            "update public.t set tenant = 'b' where id = 1",
        ]
    ):
        for prepared in make:
            if number == 0 or ("create table" not in prepared and "constraint" not in prepared):
                functions.execute(prepared.replace("create function", "create or replace function").format(statement))
        functions.execute("grant all on all tables in schema public to app")
        present(writer, acquire(functions, "tenant:b"))
        with sqlstate("LF005"):
            writer.execute(run.format(statement))
            writer.commit()
        writer.rollback()
        functions.execute("update fence._lease set secret_hash = null", user="fence_owner")


def test_rows_that_a_client_writes_itself_are_looked_at_after_the_statement_alone(functions: Database) -> None:
    """That is what the triggers which are off here are for."""
    writer = functions.connect("app")
    present(writer, acquire(functions, "tenant:b"))
    assert writer.execute(ONE).rowcount == 1
    writer.rollback()


@pytest.mark.parametrize("template", ["nightly", "tenant:{tenant}"])
def test_the_doctor_says_which_guards_lack_the_look_at_rows(db: Database, template: str) -> None:
    make_table(db)
    protect(db, "public.t", template)
    found = "select severity, detail, remedy from fence.audit() where code in ('guard-missing', 'guard-extra')"
    assert db.execute(found) == []
    add_language(db)
    if template == "nightly":  # looked at before the statement
        assert db.execute(found) == []
        return
    ((severity, detail, remedy),) = db.execute(found)
    assert (severity, "0_fence_stopped" in detail) == ("error", True)
    db.execute(remedy)
    assert db.execute(found) == []
    db.execute("drop language later", user=SUPERUSER)
    ((severity, detail, remedy),) = db.execute(found)
    assert (severity, "0_fence_stopped" in detail) == ("warning", True)
    db.execute(remedy)
    assert db.execute(found) == []


@pytest.fixture
def later(db: Database) -> Database:
    """A guard that was made before the database got another language."""
    make_table(db)
    protect(db, "public.t", "tenant:{tenant}")
    add_language(db)
    return db


def test_a_guard_that_does_not_know_the_language_refuses_what_functions_write(later: Database) -> None:
    lease, writer = acquire(later, "tenant:a"), later.connect("app")
    present(writer, lease)
    writer.execute(ONE)  # a client's own statement cannot be stopped
    writer.commit()
    present(writer, lease)
    with sqlstate("LF013") as refusal:
        writer.execute("select public.run(%s)", (ONE,))
    writer.rollback()
    later.execute(str(refusal.diag.message_hint))
    present(writer, lease)
    writer.execute("select public.run(%s)", (ONE,))
    writer.commit()


def test_a_child_that_came_with_a_guard_of_its_own(tcl: Database, isolation: psycopg.IsolationLevel) -> None:
    """That looks at the child's rows, under its own rule."""
    protect(tcl, "public.t", "tenant:{tenant}")
    tcl.execute("create table public.child (id int not null, tenant text, body text)")
    tcl.execute("insert into public.child values (4, 'a', 'old')")
    protect(tcl, "public.child", "row:{id}")
    tcl.execute("alter table public.child inherit public.t")
    writer = tcl.connect("app", isolation=isolation)
    present(writer, acquire(tcl, "row:4"))
    refused(writer, ONE.replace("= 1", "= 4"), "does not know the language pltcl")


def test_a_parent_whose_child_came_with_a_guard_refuses_what_functions_write(db: Database) -> None:
    add_language(db)
    make_table(db)
    protect(db, "public.t", "tenant:{tenant}")
    db.execute("create table public.child (id int not null, tenant text, body text)")
    protect(db, "public.child", "row:{id}")
    db.execute("alter table public.child inherit public.t")
    writer = db.connect("app")
    present(writer, acquire(db, "tenant:a"))
    with sqlstate("LF013"):
        writer.execute("select public.run(%s)", (ONE,))


@pytest.mark.parametrize(("rule", "code"), [("once", "LF013"), ("many", None)])
def test_with_table_scope_it_does_so_where_writes_are_counted(db: Database, rule: str, code: str | None) -> None:
    """Else the claim is looked at before the statement."""
    make_table(db)
    protect(db, "public.t", "nightly", p_writes=rule)
    add_language(db)
    writer = db.connect("app")
    present(writer, acquire(db, "nightly"))
    if code is None:
        writer.execute("select public.run(%s)", (ONE,))
    else:
        with sqlstate(code):
            writer.execute("select public.run(%s)", (ONE,))


def test_a_partition_that_was_detached_refuses_what_functions_write(db: Database) -> None:
    """It has lost the row triggers that it had from its tree."""
    add_language(db)
    make_table(db)
    db.execute("create table public.p (id int, tenant text) partition by list (tenant)")
    db.execute("create table public.leaf partition of public.p for values in ('a')")
    protect(db, "public.p", "tenant:{tenant}")
    writer, lease = db.connect("app"), acquire(db, "tenant:a")
    insert = "select public.run('insert into public.leaf values (1, ''a'')')"
    present(writer, lease)
    writer.execute(insert)
    writer.commit()
    db.execute("alter table public.p detach partition public.leaf")
    present(writer, lease)
    with sqlstate("LF013"):
        writer.execute(insert)
    writer.rollback()
    protect(db, "public.leaf", "tenant:{tenant}")
    present(writer, lease)
    writer.execute(insert)
    writer.commit()


def test_a_parent_whose_child_was_made_later_refuses_what_functions_write(db: Database) -> None:
    add_language(db)
    make_table(db)
    protect(db, "public.t", "tenant:{tenant}")
    db.execute("create table public.child () inherits (public.t)")
    writer, lease = db.connect("app"), acquire(db, "tenant:a")
    present(writer, lease)
    with sqlstate("LF013") as refusal:
        writer.execute("select public.run(%s)", (ONE,))
    writer.rollback()
    db.execute(str(refusal.diag.message_hint))
    present(writer, lease)
    writer.execute("select public.run(%s)", (ONE,))


def test_cascades_pass_once_the_guard_knows_the_language(later: Database) -> None:
    """They are PostgreSQL's own, and run to their end; a guard cannot tell them from a function's."""
    later.execute("create table public.parent (id int primary key)")
    later.execute("insert into public.parent values (7)")
    later.execute("alter table public.t add parent int references public.parent on update cascade")
    later.execute("select fence.unprotect('public.t')")
    later.execute("update public.t set parent = 7 where id = 1")
    later.execute("drop language later", user=SUPERUSER)
    protect(later, "public.t", "tenant:{tenant}")
    add_language(later)
    writer, lease = later.connect("app"), acquire(later, "tenant:a")
    later.execute("grant all on public.parent to app")
    for code in ("LF013", None):
        present(writer, lease)
        if code is None:
            writer.execute("update public.parent set id = 8")
        else:
            with sqlstate(code):
                writer.execute("update public.parent set id = 8")
        writer.rollback()
        later.execute("select fence.repair('public.t')")


def test_an_exempt_role_passes_a_guard_that_does_not_know_the_language(later: Database) -> None:
    later.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')")
    later.connect("outsider", autocommit=True).execute("select public.run(%s)", (ONE,))
    assert ("LF013",) in later.execute("select distinct code from fence.violations")
