"""Every kind of statement that changes rows of a guarded table.

Refused without the right claim, with nothing stored and the right code; accepted with it, with the count and the rows
that PostgreSQL always gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from guards.scene import (
    Scope,
    acquire,
    ask,
    check_refusal,
    contents,
    expire,
    forge,
    make_tables,
    present,
    protect,
    supersede,
)
from harness import Connection, Database, sqlstate

Write = Callable[[Connection], Any]


def run(statement: str, rows: int | None = None, returned: list[Any] | None = None) -> Write:
    """A write by one statement, with the count and the rows it gives when it is accepted."""

    def write(connection: Connection) -> None:
        cursor = connection.execute(statement)
        if rows is not None:
            assert cursor.rowcount == rows
        if returned is not None:
            assert cursor.fetchall() == returned

    return write


def several(*statements: str) -> Write:
    def write(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    return write


def copy_in(connection: Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("copy public.t (id, tenant, region) from stdin") as copy:
        copy.write_row((4, "a", "eu"))


def execute_many(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("update public.t set body = %s where id = %s", [("new", 1), ("new", 2)])


def pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("update public.t set body = 'new' where id = 1")


def prepared(connection: Connection) -> None:
    if not connection.execute("select from pg_prepared_statements where name = 'w'").fetchall():
        connection.execute("prepare w (text, int) as update public.t set body = $1 where id = $2")
    connection.execute("execute w ('new', 1)")


SETUP = """
create function public.touch() returns int language plpgsql as $$
  declare n int; begin update public.t set body = 'new' where id = 1; get diagnostics n = row_count; return n; end $$;
create function public.touch_sql() returns int language sql as
  $$ update public.t set body = 'new' where id = 1 returning id $$;
create function public.touch_definer() returns int language sql security definer as
  $$ update public.t set body = 'new' where id = 1 returning id $$;
create procedure public.touch_procedure() language sql as $$ update public.t set body = 'new' where id = 1 $$;
create function public.follow() returns trigger language plpgsql as
  $$ begin update public.t set body = 'new' where id = new.id; return new; end $$;
create trigger follow after insert on public.log for each row execute function public.follow();
create trigger early before delete on public.log for each row execute function public.follow();
create view public.t_view as select id, tenant, region, body from public.t where id < 100;
create view public.joined as select t.id, t.body from public.t join public.parent p on p.id = t.parent;
create rule joined_update as on update to public.joined
  do instead update public.t set body = new.body where id = old.id;
create view public.t_front as select id, body from public.t order by id;
create function public.front() returns trigger language plpgsql as
  $$ begin update public.t set body = new.body where id = old.id; return new; end $$;
create trigger front instead of update on public.t_front for each row execute function public.front();
create table public.inbox (id int, body text);
create rule inbox_insert as on insert to public.inbox do also update public.t set body = new.body where id = new.id;
grant all on all tables in schema public to app, outsider;
grant execute on all functions in schema public to app, outsider;
grant execute on all procedures in schema public to app, outsider;
"""

INSERT = "insert into public.t (id, tenant, region) values (4, 'a', 'eu')"
UPSERT = "insert into public.t (id, tenant, region, body) values (%s, 'a', 'eu', 'new') on conflict (id) do "

WRITES: dict[str, Write] = {
    "insert": run(INSERT, 1),
    "insert returning": run(INSERT + " returning id, body", 1, [(4, "old")]),
    "insert select": run("insert into public.t select 4, tenant, region from public.t where id = 1", 1),
    "update": run("update public.t set body = 'new' where id in (1, 2)", 2),
    "update returning": run("update public.t set body = 'new' where id = 1 returning id, body", 1, [(1, "new")]),
    "update from": run("update public.t set body = 'new' from public.parent p where p.id = t.parent and p.id = 1", 1),
    "update only": run("update only public.t set body = 'new' where id = 1", 1),
    "update to the same": run("update public.t set id = id where id = 1", 1),
    "delete": run("delete from public.t where id = 1", 1),
    "delete returning": run("delete from public.t where id = 1 returning body", 1, [("old",)]),
    "delete using": run("delete from public.t using public.parent p where p.id = t.parent and p.id = 1", 1),
    "upsert that inserts": run(UPSERT % 4 + "update set body = excluded.body", 1),
    "upsert that updates": run(UPSERT % 1 + "update set body = excluded.body", 1),
    "upsert that does nothing but inserts": run(UPSERT % 4 + "nothing", 1),
    "upsert on a constraint": run(
        (UPSERT % 1).replace("(id) do", "on constraint t_pkey do") + "update set body = excluded.body", 1
    ),
    "writable cte": run(
        "with w as (update public.t set body = 'new' where id = 1 returning id) select id from w", 1, [(1,)]
    ),
    "cte nobody reads": run("with w as (delete from public.t where id = 1) select 5", 1, [(5,)]),
    "cte of three kinds": run(
        "with i as (insert into public.t (id, tenant, region) values (4, 'a', 'eu')), "
        "d as (delete from public.t where id = 2) update public.t set body = 'new' where id = 1",
        1,
    ),
    "copy": copy_in,
    "executemany": execute_many,
    "pipeline": pipeline,
    "do block": run("do $$ begin update public.t set body = 'new' where id = 1; end $$"),
    "execute in a do block": run("do $$ begin execute 'update public.t set body = ''new'' where id = 1'; end $$"),
    "loop that ends early": run(
        "do $$ declare r record; begin for r in update public.t set body = 'new' where id in (1, 2) returning id "
        "loop exit; end loop; end $$"
    ),
    "plpgsql function": run("select public.touch()", 1, [(1,)]),
    "sql function": run("select public.touch_sql()", 1, [(1,)]),
    "definer function": run("select public.touch_definer()", 1, [(1,)]),
    "procedure": run("call public.touch_procedure()"),
    "function inside another statement": run(
        "select count(*) from public.log right join public.touch() n on true", 1, [(1,)]
    ),
    "after trigger of another table": run("insert into public.log values (1)", 1),
    "prepared": prepared,
    "cursor": several(
        "declare c cursor for select * from public.t where id = 1 for update",
        "fetch c",
        "update public.t set body = 'new' where current of c",
        "close c",
    ),
    "delete at a cursor": several(
        "declare c cursor for select * from public.t where id = 1 for update",
        "fetch c",
        "delete from public.t where current of c",
        "close c",
    ),
    "updatable view": run("update public.t_view set body = 'new' where id = 1", 1),
    "insert through a view": run("insert into public.t_view values (4, 'a', 'eu', 'new')", 1),
    "delete through a view": run("delete from public.t_view where id = 1", 1),
    "instead of trigger": run("update public.t_front set body = 'new' where id = 1", 1),
    "rule instead": run("update public.joined set body = 'new' where id = 1"),
    "rule also": run("insert into public.inbox values (1, 'new')"),
    "delete cascade": run("delete from public.parent where id = 1", 1),
    "update cascade": run("update public.parent set id = 11 where id = 1", 1),
    "merge that updates": run(
        "merge into public.t using (values (1)) v (id) on t.id = v.id when matched then update set body = 'new'", 1
    ),
    "merge that inserts": run(
        "merge into public.t using (values (4)) v (id) on t.id = v.id "
        "when not matched then insert (id, tenant, region) values (4, 'a', 'eu')",
        1,
    ),
    "merge that deletes": run(
        "merge into public.t using (values (1)) v (id) on t.id = v.id when matched then delete", 1
    ),
    "merge of all kinds": run(
        "merge into public.t using (values (1), (2), (4)) v (id) on t.id = v.id when matched and v.id = 1 then delete "
        "when matched then update set body = 'new' "
        "when not matched then insert (id, tenant, region) values (4, 'a', 'eu')",
        3,
    ),
    "merge that does nothing but inserts": run(
        "merge into public.t using (values (1), (4)) v (id) on t.id = v.id when matched then do nothing "
        "when not matched then insert (id, tenant, region) values (4, 'a', 'eu')",
        1,
    ),
    "merge by source": run(
        "merge into public.t using (values (2)) v (id) on t.id = v.id when matched then do nothing "
        "when not matched by source and t.id = 1 then update set body = 'new'",
        1,
    ),
    "update returning both images": run(
        "update public.t set body = 'new' where id = 1 returning old.body, new.body", 1, [("old", "new")]
    ),
    "merge returning both images": run(
        "merge into public.t using (values (1)) v (id) on t.id = v.id when matched then update set body = 'new' "
        "returning merge_action(), old.body, new.body",
        1,
        [("UPDATE", "old", "new")],
    ),
}
SINCE = {"both images": 18, "by source": 17, "merge": 15}  # the release of PostgreSQL that kinds so called came with


@pytest.mark.parametrize("kind", list(WRITES))
def test_a_write_needs_the_current_claim(db: Database, t: str, scope: Scope, kind: str) -> None:
    since = next((version for name, version in SINCE.items() if name in kind), 0)
    if db.cluster.version < since:
        pytest.skip(f"it came with PostgreSQL {since}")
    db.execute(SETUP)
    write, before = WRITES[kind], contents(db)
    stale = [acquire(db, resource) for resource in scope.mine]
    mine = [supersede(db, lease) for lease in stale]
    other = acquire(db, scope.other)
    wrong = [replace(lease, secret="0" * 32) for lease in mine]
    connection = db.connect("app")

    for isolation in list(psycopg.IsolationLevel)[1:]:
        connection.isolation_level = isolation
        for code, show, leases in (
            ("LF004", present, []),
            ("LF005", present, [other]),
            ("LF001", forge, stale),
            ("LF006", forge, wrong),
        ):
            show(connection, *leases)
            with sqlstate(code) as refused:
                write(connection)
            connection.rollback()
            check_refusal(refused.diag, table="t", secrets=[lease.secret for lease in (*stale, *mine, other)])
            assert contents(db) == before, code

        present(connection, *mine)
        write(connection)
        changed = connection.execute("select t::text from public.t order by 1").fetchall()
        connection.rollback()
        assert changed != db.execute("select t::text from public.t order by 1") or kind == "update to the same"

    present(connection, *mine)
    write(connection)
    connection.commit()
    assert contents(db) != before or kind == "update to the same"


@pytest.mark.parametrize(
    "kind", ["insert", "update", "delete", "upsert that updates", "copy", "delete cascade", "sql function"]
)
def test_a_job_without_any_right_in_the_schema_is_refused_properly(
    db: Database, t: str, kind: str, isolation: psycopg.IsolationLevel
) -> None:
    db.execute(SETUP)
    before = contents(db)
    connection = db.connect("outsider", isolation=isolation)
    with sqlstate("LF004") as refused:
        WRITES[kind](connection)
    check_refusal(refused.diag, table="t")
    assert contents(db) == before


def test_an_upsert_that_does_nothing_stores_nothing(
    db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel
) -> None:
    lease = acquire(db, scope.mine[0])
    connection = db.connect("app", isolation=isolation)
    with sqlstate("LF004"):
        connection.execute(UPSERT % 1 + "nothing")
    connection.rollback()
    present(connection, lease)
    assert connection.execute(UPSERT % 1 + "nothing").rowcount == 0
    connection.commit()
    supersede(db, lease)
    with sqlstate("LF001"):
        present(connection, lease)


def test_a_write_that_touches_no_row_needs_a_claim_too_but_any(db: Database, t: str, scope: Scope) -> None:
    connection = db.connect("app")
    with sqlstate("LF004"):
        connection.execute("update public.t set body = 'new' where id = 99")
    connection.rollback()
    present(connection, acquire(db, scope.mine[0]))
    assert connection.execute("update public.t set body = 'new' where id = 99").rowcount == 0


def test_copy_of_three_rows_with_one_uncovered_stores_none(db: Database, isolation: psycopg.IsolationLevel) -> None:
    make_tables(db)
    protect(db, "public.t", "row:{id}")
    before = contents(db)
    connection = db.connect("app", isolation=isolation)
    present(connection, acquire(db, "row:7"), acquire(db, "row:9"))
    with sqlstate("LF005") as refused, connection.cursor() as cursor:  # noqa: SIM117
        with cursor.copy("copy public.t (id) from stdin") as copy:
            for number in (7, 8, 9):
                copy.write_row((number,))
    assert "row:8" in refused.diag.message_primary
    connection.rollback()
    assert contents(db) == before


def test_every_row_of_a_bulk_statement_is_checked(db: Database, isolation: psycopg.IsolationLevel) -> None:
    """However many rows are covered: the first, the last or one in the middle that is not decides."""
    db.execute("create table public.many (id int primary key, tenant text, body text)")
    db.execute("insert into public.many select n, 'a', 'old' from generate_series(1, 5000) n")
    protect(db, "public.many", "tenant:{tenant}")
    connection = db.connect("app", isolation=isolation)
    lease = acquire(db, "tenant:a")
    for number in (1, 2500, 5000):
        db.execute("alter table public.many disable trigger user")
        db.execute("update public.many set tenant = case when id = %s then 'b' else 'a' end", (number,))
        protect(db, "public.many", "tenant:{tenant}")
        for statement in ("update public.many set body = 'new'", "delete from public.many"):
            present(connection, lease)
            with sqlstate("LF005") as refused:
                connection.execute(statement)
            assert "tenant:b" in refused.diag.message_primary
            connection.rollback()
    present(connection, lease, acquire(db, "tenant:b"))
    assert connection.execute("update public.many set body = 'new'").rowcount == 5000


@pytest.mark.parametrize(
    ("action", "statement"),
    [
        ("on delete cascade", "delete from public.customer"),
        ("on delete set null", "delete from public.customer"),
        ("on delete set default", "delete from public.customer where id <> 0"),
        ("on update cascade", "update public.customer set id = id + 100 where id <> 0"),
        ("on update set null", "update public.customer set id = id + 100 where id <> 0"),
        ("on update set default", "update public.customer set id = id + 100 where id <> 0"),
    ],
)
@pytest.mark.parametrize(
    ("template", "resources"),
    [
        ("tickets", ["tickets"]),
        ("tenant:{tenant}", ["tenant:a", "tenant:b"]),
        ("{tenant}/{id}", ["a/1", "a/2", "b/3"]),
    ],
    ids=["table", "row", "composite"],
)
def test_a_cascade_from_an_unprotected_parent_is_checked_for_each_row(
    db: Database, action: str, statement: str, template: str, resources: list[str], isolation: psycopg.IsolationLevel
) -> None:
    """PostgreSQL runs one cascaded statement a parent row; the first being covered does not cover the rest."""
    db.execute("create table public.customer (id int primary key)")
    db.execute("insert into public.customer values (0), (1), (2), (3)")
    db.execute(
        "create table public.ticket (id int primary key, tenant text, "
        f"customer int default 0 references public.customer {action})"
    )
    db.execute("insert into public.ticket values (1, 'a', 1), (2, 'a', 2), (3, 'b', 3)")
    protect(db, "public.ticket", template)
    before = contents(db, "public.ticket", "public.customer")
    mine, other = [acquire(db, resource) for resource in resources], acquire(db, "other")
    connection = db.connect("app", isolation=isolation)
    for leases, code in (([], "LF004"), ([other, *mine[:-1]], "LF005"), ([other, *mine[1:]], "LF005")):
        present(connection, *leases)
        with sqlstate(code):
            connection.execute(statement)
        connection.rollback()
        assert contents(db, "public.ticket", "public.customer") == before
    present(connection, *mine)
    connection.execute(statement)
    connection.commit()
    assert contents(db, "public.ticket", "public.customer") != before


def test_a_prepared_transaction_writes_under_the_claim_until_it_is_ended(
    db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel
) -> None:
    leases, before = [acquire(db, resource) for resource in scope.mine], contents(db)
    connection = db.connect("app", autocommit=True)
    begin, write = f"begin isolation level {isolation.name.replace('_', ' ')}", WRITES["update"]
    connection.execute(begin)
    with sqlstate("LF004"):
        write(connection)
    connection.execute("prepare transaction 'refused'")  # of a failed transaction: rolled back
    connection.execute(begin)
    present(connection, *leases)
    write(connection)
    connection.execute("prepare transaction 'accepted'")
    for lease in leases[:2]:
        expire(db, lease.resource)
        assert ask(db, lease.resource).reason == "draining"
    assert contents(db) == before
    connection.execute("commit prepared 'accepted'")
    assert contents(db) != before
    assert all(ask(db, lease.resource).granted for lease in leases[:2])


def test_a_deferred_trigger_writes_under_the_claim_or_fails_the_commit(
    db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel
) -> None:
    db.execute(SETUP)
    db.execute("drop trigger follow on public.log")
    db.execute(
        "create constraint trigger late after insert on public.log deferrable initially deferred "
        "for each row execute function public.follow()"
    )
    before, mine = contents(db), [acquire(db, resource) for resource in scope.mine]
    connection = db.connect("app", isolation=isolation)
    connection.execute("insert into public.log values (1)")
    with sqlstate("LF004"):
        connection.commit()
    assert contents(db) == before
    connection.execute("insert into public.log values (1)")
    present(connection, *mine)
    connection.commit()
    assert (1, "a", "eu", "new", 1) in contents(db, "public.t")
