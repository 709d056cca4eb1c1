"""Statements that are stopped at a number of rows: PostgreSQL fires no trigger after them, but writes their rows."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import acquire, contents, expire, present, protect
from harness import SUPERUSER, Connection, Database, sqlstate

READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED
ONE = "update public.t set body = 'new' where id = 1 returning id"


@pytest.fixture
def tcl(db: Database) -> Database:
    """A database with PL/Tcl, the one such language whose library is often there; a function that stops a statement."""
    try:
        db.execute("create extension pltcl", user=SUPERUSER)
    except psycopg.Error as error:
        pytest.skip(f"no PL/Tcl here ({error.diag.message_primary}): no statement was really stopped, only counted")
    db.execute(
        "create function public.first(statement text, rows text default '1') returns int "
        "language pltcl as 'spi_exec -count $2 $1'",
        user=SUPERUSER,
    )
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old'), (2, 'a', 'old'), (3, 'b', 'old')")
    return db


def first(connection: Connection, statement: str, rows: int = 1) -> None:
    connection.execute("select public.first(%s, %s)", (statement, str(rows)))


def refused(connection: Connection, table: str = "t") -> None:
    """The transaction is refused at its end, and the hint tells how to write it."""
    with sqlstate("LF005") as caught:
        connection.commit()
    assert (caught.diag.schema_name, caught.diag.table_name) == ("public", table)
    assert "Run it to its end" in (caught.diag.message_hint or "")
    connection.rollback()


@pytest.mark.parametrize(
    "statement",
    [
        ONE,
        "delete from public.t where id = 1 returning id",
        "insert into public.t values (9, 'a', 'new') returning id",
        "insert into public.t values (1, 'a', 'new') on conflict (id) do update set body = 'new' returning t.id",
        "merge into public.t using (values (1)) v (n) on id = n when matched then update set body = 'new' returning id",
    ],
)
def test_none_gets_past_a_row_scope(tcl: Database, statement: str) -> None:
    if statement.startswith("merge") and tcl.cluster.version < 17:
        statement = ONE.replace("= 1", "in (1, 3)")  # MERGE returns nothing before 17
    protect(tcl, "public.t", "tenant:{tenant}")
    before = contents(tcl, "public.t")
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:other"))
    first(writer, statement)
    refused(writer)
    outsider = tcl.connect("outsider")
    outsider.execute("select set_config('fence.claims', pg_current_xact_id()::text || chr(10), true)")
    first(outsider, statement)
    refused(outsider)
    assert contents(tcl, "public.t") == before


def test_a_former_holder_does_not_get_past_its_successor(tcl: Database, isolation: psycopg.IsolationLevel) -> None:
    protect(tcl, "public.t", "tenant:{tenant}")
    old = acquire(tcl, "tenant:a")
    claim = f"-c fence.claim={old.resource.encode().hex()}:{old.token}:{old.secret}"
    former, holder = tcl.connect("app", options=claim, isolation=isolation), tcl.connect("app")
    expire(tcl, "tenant:a")
    present(holder, acquire(tcl, "tenant:a"))
    holder.execute("update public.t set body = 'holder' where id = 2")
    first(former, ONE)
    refused(former)
    holder.commit()
    assert contents(tcl, "public.t")[:2] == [(1, "a", "old"), (2, "a", "holder")]


def test_a_statement_that_runs_to_its_end_is_judged_as_ever(tcl: Database, isolation: psycopg.IsolationLevel) -> None:
    protect(tcl, "public.t", "tenant:{tenant}")
    lease, writer = acquire(tcl, "tenant:a"), tcl.connect("app", isolation=isolation)
    for number in range(2):
        present(writer, lease)
        first(writer, ONE, rows=0)
        first(writer, ONE, rows=2)
        writer.execute(ONE)
        with pytest.raises(psycopg.Error, match="tenant:b"), writer.transaction():
            first(writer, "update public.t set body = 'x' returning id", rows=5)
        writer.rollback() if number else writer.commit()
    assert tcl.execute("select * from fence._open_statement", user="fence_owner") == []


@pytest.mark.parametrize("table", ["root", "leaf", "parent"])
def test_in_a_tree(tcl: Database, table: str) -> None:
    if table == "parent":
        tcl.execute("create table public.child () inherits (public.t)")
        tcl.execute("insert into public.child values (4, 'a', 'old')")
        root, key = "t", 4
    else:
        tcl.execute("create table public.p (id int, tenant text, body text) partition by list (tenant)")
        tcl.execute("create table public.leaf partition of public.p for values in ('a')")
        tcl.execute("insert into public.p values (1, 'a', 'old')")
        root, key = "p", 1
    protect(tcl, f"public.{root}", "tenant:{tenant}")
    written = {"root": "p", "leaf": "leaf", "parent": "t"}[table]
    writer = tcl.connect("app")
    present(writer, acquire(tcl, "tenant:other"))
    first(writer, f"update public.{written} set body = 'new' where id = {key} returning id")
    refused(writer, written)


@pytest.mark.parametrize("rule", ["once", "sequenced"])
def test_once_is_once(tcl: Database, rule: str) -> None:
    protect(tcl, "public.t", "nightly", p_writes=rule)
    lease, writer = acquire(tcl, "nightly"), tcl.connect("app")
    present_numbered = "select fence.present(%s, %s, %s, 1)"
    writer.execute(present_numbered, lease.parameters)
    first(writer, ONE)
    refused(writer)
    writer.execute(present_numbered, lease.parameters)
    writer.execute(ONE)
    writer.commit()
    writer.execute(present_numbered, lease.parameters)
    with sqlstate("LF007"):
        writer.execute(ONE)


# -- counting, where a statement could be stopped ----------------------------------------------------------------------


@pytest.fixture
def counted(db: Database) -> Database:
    """Guards that count statements; that of public.t never sees one end, as if each had been stopped."""
    add_language(db)
    for table in ("t", "u"):
        db.execute(f"create table public.{table} (id int primary key, tenant text, body text)")
        db.execute(f"insert into public.{table} values (1, 'a', 'old'), (2, 'a', 'old'), (3, 'b', 'old')")
        protect(db, f"public.{table}", "tenant:{tenant}")
    db.execute('alter table public.t disable trigger "0_fence_update"')
    return db


def add_language(db: Database) -> None:
    """By its name alone it is one in which a statement could be stopped."""
    db.execute("create language later handler plpgsql_call_handler", user=SUPERUSER)


@pytest.mark.parametrize(
    "after",
    [
        "update public.u set body = 'whole' where id = 1",
        "select set_config('fence.statement', '', true)",
        "select set_config('fence.statement', '(0,1)', true)",
        "select set_config('fence.statement', '(x', true)",
        "update public.u set body = set_config('fence.statement', '', true) where id = 1",
        "update public.u set body = set_config('fence.statement', '(0,1)', true) where id = 1",
        "set constraints all immediate",
        "set constraints all deferred",
        "do $$ begin update public.u set body = 'x' where id = 3; exception when others then null; end $$",
        "savepoint s; update public.u set body = 'mine' where id = 1; rollback to s",
        "update public.u set body = 'mine' where id = 1; set constraints all immediate",
    ],
)
def test_nothing_makes_up_for_a_statement_that_was_stopped(counted: Database, after: str) -> None:
    writer = counted.connect("app")
    present(writer, acquire(counted, "tenant:a"))
    writer.execute("update public.u set body = 'whole' where id = 1")
    writer.execute(ONE)
    with sqlstate("LF005") as caught:
        writer.execute(after)
        writer.commit()
    assert caught.diag.table_name == "t"
    writer.rollback()
    assert {row[2] for row in [*contents(counted, "public.t"), *contents(counted, "public.u")]} == {"old"}


def test_a_setting_that_is_changed_within_a_statement_lets_nothing_through(counted: Database) -> None:
    """Of two places of this transaction, the end of one statement is put down to the other."""
    writer = counted.connect("app")
    present(writer, acquire(counted, "tenant:a"))
    writer.execute(ONE)
    ((place,),) = writer.execute("select set_config('fence.statement', current_setting('fence.statement'), true)")
    writer.execute("select set_config('fence.statement', '', true)")
    writer.execute("update public.u set body = set_config('fence.statement', %s, true) where id = 1", (place,))
    refused(writer, "u")


def test_a_row_that_is_not_written_is_refused_as_well(counted: Database) -> None:
    """A statement without a row that was stopped cannot be told from one with rows."""
    writer = counted.connect("app")
    present(writer, acquire(counted, "tenant:a"))
    writer.execute("update public.t set body = 'new' where false")
    refused(writer)


def test_constraints_made_immediate_refuse_nobody_else(counted: Database) -> None:
    """And what is stopped afterwards is refused all the same."""
    lease, writer = acquire(counted, "tenant:a"), counted.connect("app")
    whole = "update public.u set body = 'whole' where id = 1"
    writer.execute("set constraints all immediate")
    present(writer, lease)
    writer.execute(whole)
    writer.execute("set constraints all immediate")
    writer.execute(whole)
    writer.execute("set constraints all immediate")
    writer.commit()
    present(writer, lease)
    writer.execute("set constraints all immediate")
    writer.execute(ONE)
    refused(writer)


def test_a_savepoint_takes_it_back(counted: Database) -> None:
    writer = counted.connect("app")
    present(writer, acquire(counted, "tenant:a"))
    with writer.transaction(force_rollback=True):
        writer.execute(ONE)
    writer.execute("update public.u set body = 'mine' where id = 1")
    writer.commit()
    assert [row[2] for row in contents(counted, "public.u")] == ["mine", "old", "old"]
    assert counted.execute("select * from fence._open_statement", user="fence_owner") == []


def test_it_is_refused_before_it_is_prepared(counted: Database) -> None:
    writer = counted.connect("app", autocommit=True)
    writer.execute("begin")
    present(writer, acquire(counted, "tenant:a"))
    writer.execute(ONE)
    with sqlstate("LF005"):
        writer.execute("prepare transaction 'stopped'")


def test_writers_do_not_meet_where_statements_are_counted(counted: Database, isolation: psycopg.IsolationLevel) -> None:
    writers = []
    for tenant, key in (("a", 1), ("b", 3)):
        writer = counted.connect("app", options="-c lock_timeout=1s", isolation=isolation)
        present(writer, acquire(counted, f"tenant:{tenant}"))
        writer.execute(f"update public.u set body = 'new' where id = {key}")
        writers.append(writer)
    for writer, key in zip(writers, (1, 3), strict=True):
        writer.execute(f"update public.u set body = 'newer' where id = {key}")
        writer.commit()
    assert [row[2] for row in contents(counted, "public.u")] == ["newer", "old", "newer"]


def test_cascades_are_counted_on_both_sides(counted: Database) -> None:
    """Their triggers fire in two queries: before, in that of the cascade; after, in the outer one."""
    counted.execute("create table public.c (id int primary key, u int references public.u on delete cascade)")
    counted.execute("create table public.d (id int primary key, c int references public.c on delete cascade)")
    counted.execute("insert into public.c values (1, 1), (2, 1)")
    counted.execute("insert into public.d values (1, 1), (2, 2)")
    for table, template in (("c", "child:{id}"), ("d", "grandchild:{id}")):
        protect(counted, f"public.{table}", template)
    writer = counted.connect("app")
    names = ["tenant:a", *(f"{kind}:{n}" for kind in ("child", "grandchild") for n in (1, 2))]
    present(writer, *(acquire(counted, name) for name in names))
    writer.execute("delete from public.u where id = 1")
    writer.commit()
    assert counted.execute("select count(*) from public.d") == [(0,)]


def test_an_exempt_role_is_held_to_it_too(counted: Database) -> None:
    """What it writes is noted after the statement; where nothing looks, nothing is."""
    for table in ("t", "u"):
        counted.execute(f"select fence.exempt('public.{table}', 'outsider', now() + interval '1 h', 'x')")
    outsider = counted.connect("outsider")
    outsider.execute("update public.u set body = 'exempt'")
    outsider.commit()
    outsider.execute(ONE)
    refused(outsider)


@pytest.mark.parametrize("damage", ["disable trigger _open_statement_refused", "disable trigger own_tables_guard"])
def test_the_doctor_says_that_the_count_is_not_looked_at(counted: Database, damage: str) -> None:
    found = "select remedy from fence.audit() where code = 'own-guard' and object = 'fence._open_statement'"
    assert counted.execute(found) == []
    counted.execute(f"alter table fence._open_statement {damage}", user="fence_owner")
    ((remedy,),) = counted.execute(found)
    counted.execute(remedy, user="fence_owner")
    assert counted.execute(found) == []
    writer = counted.connect("app")
    present(writer, acquire(counted, "tenant:a"))
    writer.execute(ONE)
    refused(writer)


# -- a language that comes later ---------------------------------------------------------------------------------------


@pytest.fixture
def later(db: Database) -> Database:
    """A guard that was made before the database got another language; and a function that writes."""
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old'), (2, 'a', 'old')")
    protect(db, "public.t", "tenant:{tenant}")
    db.execute(f"create function public.write() returns int language sql as $${ONE}$$")
    add_language(db)
    return db


def test_a_guard_that_does_not_know_the_language_refuses_what_functions_write(later: Database) -> None:
    lease, writer = acquire(later, "tenant:a"), later.connect("app")
    present(writer, lease)
    writer.execute(ONE)  # a client's own statement cannot be stopped
    writer.commit()
    present(writer, lease)
    with sqlstate("LF013") as refused:
        writer.execute("select public.write()")
    writer.rollback()
    found = "select severity, remedy from fence.audit() where code = 'guard-function-changed' and object = 'public.t'"
    assert later.execute(found) == [("error", refused.diag.message_hint)]
    later.execute(str(refused.diag.message_hint))
    assert later.execute(found) == []
    present(writer, lease)
    writer.execute("select public.write()")
    writer.commit()


def test_an_exempt_role_passes_a_guard_that_does_not_know_the_language(later: Database) -> None:
    later.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')")
    later.connect("outsider", autocommit=True).execute("select public.write()")
    assert ("LF013",) in later.execute("select distinct code from fence.violations")


def test_where_no_such_language_is_nothing_is_counted(db: Database) -> None:
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old')")
    protect(db, "public.t", "tenant:{tenant}")
    lease = acquire(db, "tenant:a")
    writer = db.connect("app")
    db.execute(f"create function public.write() returns int language sql as $${ONE}$$")
    present(writer, lease)
    writer.execute("select public.write()")
    assert writer.execute("select current_setting('fence.statement', true)").fetchall() in ([(None,)], [("",)])
    writer.commit()
