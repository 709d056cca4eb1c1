"""Partitions and inheritance children: through the root, through the leaf, between leaves, and in leaves made later."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import acquire, contents, present, protect
from harness import Connection, Database, sqlstate

PARTITIONS = """
create table public.p (id int, tenant text, body text) partition by list (tenant);
create table public.pa partition of public.p for values in ('a');
create table public.pb partition of public.p for values in ('b');
create table public.pc partition of public.p for values in ('c', 'd') partition by range (id);
create table public.pc1 partition of public.pc for values from (0) to (100);
create table public.pc2 partition of public.pc for values from (100) to (200);
insert into public.p values (1, 'a', 'old'), (2, 'b', 'old'), (3, 'c', 'old'), (4, 'd', 'old');
"""
INHERITANCE = """
create table public.p (id int, tenant text, body text);
create table public.pa () inherits (public.p);
create table public.pb (more int) inherits (public.p);
insert into public.pa values (1, 'a', 'old');
insert into public.pb values (2, 'b', 'old');
insert into public.p values (3, 'c', 'old'), (4, 'd', 'old');
"""
TREES = {"partitions": PARTITIONS, "inheritance": INHERITANCE}
#: A template, the resource of row 1 and one that covers nothing.
TEMPLATES = {"tenant": ("t:{tenant}", "t:a", "t:x"), "row": ("r:{id}", "r:1", "r:9"), "table": ("all", "all", "all2")}


@pytest.fixture(params=list(TREES))
def tree(request: pytest.FixtureRequest, db: Database) -> str:
    db.execute(TREES[request.param])
    db.execute("grant all on all tables in schema public to app, outsider")
    return str(request.param)


def denied(connection: Connection, code: str, statement: str, *leases: Any) -> None:
    present(connection, *leases)
    with sqlstate(code):
        connection.execute(statement)
    connection.rollback()


WRITES = [
    "insert into public.{} (id, tenant, body) values (1, 'a', 'new')",
    "update public.{} set body = 'new' where id = 1",
    "delete from public.{} where id = 1",
    "with w as (update public.{} set body = 'new' where id = 1 returning 1) select * from w",
]


@pytest.mark.parametrize("name", list(TEMPLATES))
@pytest.mark.parametrize("way", ["p", "pa"])
def test_a_tree_is_guarded_through_its_root_and_its_leaves(
    db: Database, tree: str, name: str, way: str, isolation: psycopg.IsolationLevel
) -> None:
    template, mine, other = TEMPLATES[name]
    protect(db, "public.p", template)
    before = contents(db, "public.p")
    lease, wrong = acquire(db, mine), acquire(db, other)
    connection = db.connect("app", isolation=isolation)
    for statement in WRITES:
        denied(connection, "LF004", statement.format(way))
        denied(connection, "LF005", statement.format(way), wrong)
        present(connection, lease)
        connection.execute(statement.format(way))
        connection.rollback()
    assert contents(db, "public.p") == before


MOVES = {
    "update": "update public.p set {} where id = {}",
    "merge": "merge into public.p using (values ({1})) v (n) on p.id = v.n when matched then update set {0}",
}


@pytest.mark.parametrize("verb", list(MOVES))
@pytest.mark.parametrize("target", ["b", "d"])
def test_a_move_between_leaves_needs_both_claims(
    db: Database, tree: str, verb: str, target: str, isolation: psycopg.IsolationLevel
) -> None:
    if verb == "merge" and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    protect(db, "public.p", "t:{tenant}")
    before = contents(db, "public.p")
    leases = {tenant: acquire(db, f"t:{tenant}") for tenant in "abcd"}
    connection = db.connect("app", isolation=isolation)
    for number, source in enumerate("abcd", 1):
        statement = MOVES[verb].format(f"tenant = '{target}'", number)
        if source == target:
            present(connection, leases[source])
            connection.execute(statement)
            connection.rollback()
            continue
        denied(connection, "LF004", statement)
        denied(connection, "LF005", statement, leases[source])
        denied(connection, "LF005", statement, leases[target])
        present(connection, leases[source], leases[target])
        connection.execute(statement)
        assert connection.execute("select tenant from public.p where id = %s", (number,)).fetchall() == [(target,)]
        connection.rollback()
    assert contents(db, "public.p") == before


@pytest.mark.parametrize("verb", list(MOVES))
def test_a_row_that_changes_leaf_without_changing_its_resource(
    db: Database, verb: str, isolation: psycopg.IsolationLevel
) -> None:
    """The partition is one thing, the resource another."""
    if verb == "merge" and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    db.execute(PARTITIONS)
    db.execute("grant all on all tables in schema public to app")
    protect(db, "public.p", "r:{id}")
    statement = MOVES[verb].format("tenant = 'b'", 1)
    one, two = acquire(db, "r:1"), acquire(db, "r:2")
    connection = db.connect("app", isolation=isolation)
    denied(connection, "LF004", statement)
    denied(connection, "LF005", statement, two)
    present(connection, one)
    connection.execute(statement)
    connection.commit()
    assert db.execute("select id from public.pb order by id") == [(1,), (2,)]


@pytest.mark.parametrize("trigger", ["0_a", "zzz", "~z"])
def test_a_rival_trigger_cannot_steal_a_row_across_leaves(db: Database, trigger: str) -> None:
    db.execute(PARTITIONS)
    db.execute("grant all on all tables in schema public to app")
    db.execute(
        "create function public.rival() returns trigger language plpgsql as "
        "$$ begin new.body := 'x'; if new.id < 100 then new.id := 150; end if; return new; end $$"
    )
    protect(db, "public.p", "r:{id}")
    db.execute(f'create trigger "{trigger}" before update on public.p for each row execute function public.rival()')
    connection = db.connect("app")
    one, theirs = acquire(db, "r:3"), acquire(db, "r:150")
    for statement in (
        "update public.p set body = 'new' where id = 3",
        "merge into public.p using (values (3)) v (n) on p.id = v.n when matched then update set body = 'new'",
        "update public.pc1 set body = 'new' where id = 3",
    ):
        if statement.startswith("merge") and db.cluster.version < 15:
            continue
        for lease in (one, theirs):
            present(connection, lease)
            with pytest.raises(psycopg.DatabaseError) as refusal:
                connection.execute(statement)
            # a row cannot leave the partition that the statement names: PostgreSQL's own refusal
            assert refusal.value.sqlstate in ("LF005", "23514")
            connection.rollback()
    assert (3, "c", "old") in contents(db, "public.p")


@pytest.mark.parametrize("name", list(TEMPLATES))
@pytest.mark.parametrize("how", ["partition of", "attach"])
def test_a_partition_made_later_refuses_at_once(
    db: Database, name: str, how: str, isolation: psycopg.IsolationLevel
) -> None:
    template, _, other = TEMPLATES[name]
    db.execute(PARTITIONS)
    protect(db, "public.p", template)
    if how == "attach":
        db.execute("create table public.pz (id int, tenant text, body text)")
        db.execute("insert into public.pz values (9, 'z', 'old')")
        db.execute("alter table public.p attach partition public.pz for values in ('z')")
    else:
        db.execute("create table public.pz partition of public.p for values in ('z')")
    db.execute("grant all on all tables in schema public to app")
    before = contents(db, "public.p")
    connection = db.connect("app", isolation=isolation)
    for way in ("p", "pz"):
        for statement in (
            f"insert into public.{way} values (8, 'z', 'new')",
            f"update public.{way} set body = 'new' where tenant = 'z'",
            f"delete from public.{way} where tenant = 'z'",
        ):
            if how == "partition of" and way == "pz" and "insert" not in statement:
                continue  # no row to touch
            with pytest.raises(psycopg.DatabaseError) as refusal:
                connection.execute(statement)
            assert refusal.value.sqlstate == "LF004"
            connection.rollback()
    if name != "table":
        denied(connection, "LF005", "insert into public.pz values (8, 'z', 'new')", acquire(db, other))
    assert contents(db, "public.p") == before
    lease = acquire(db, {"tenant": "t:z", "row": "r:8", "table": "all"}[name])
    for way in ("p", "pz"):
        present(connection, lease)
        assert connection.execute(f"insert into public.{way} values (8, 'z', 'new')").rowcount == 1
        connection.rollback()


@pytest.mark.parametrize(
    "statement", ["truncate public.p", "truncate public.pa", "truncate only public.pa", "truncate public.pc"]
)
def test_truncate_anywhere_in_the_tree(db: Database, statement: str) -> None:
    db.execute(PARTITIONS)
    db.execute("grant all on all tables in schema public to app")
    protect(db, "public.p", "t:{tenant}")
    before = contents(db, "public.p")
    connection = db.connect("app")
    denied(connection, "LF004", statement)
    denied(connection, "LF005", statement, acquire(db, "t:a"))
    assert contents(db, "public.p") == before
    protect(db, "public.p", "all")
    denied(connection, "LF004", statement)
    present(connection, acquire(db, "all"))
    connection.execute(statement)


def test_unprotect_leaves_nothing_in_the_tree(db: Database, tree: str) -> None:
    for template, _, _ in TEMPLATES.values():
        protect(db, "public.p", template)
        db.execute("select fence.unprotect('public.p')")
        left = db.execute("select tgrelid::regclass::text, tgname::text from pg_trigger where tgname ~ '0_fence'")
        assert left == []
        db.execute("update public.p set body = body")


def test_a_bulk_statement_over_the_tree_checks_every_leaf(db: Database, tree: str) -> None:
    protect(db, "public.p", "t:{tenant}")
    leases = [acquire(db, f"t:{tenant}") for tenant in "abcd"]
    connection = db.connect("app")
    for missing in range(4):
        denied(connection, "LF005", "update public.p set body = 'new'", *leases[:missing], *leases[missing + 1 :])
        denied(connection, "LF005", "delete from public.p", *leases[:missing], *leases[missing + 1 :])
    present(connection, *leases)
    assert connection.execute("update public.p set body = 'new'").rowcount == 4
