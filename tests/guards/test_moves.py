"""A row that changes its resource is the business of both owners: the one it leaves and the one it comes to."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from guards.scene import Lease, acquire, contents, present, protect
from harness import Connection, Database, sqlstate

GIVE = "update public.t set tenant = 'b' where id = 1"
TAKE = "update public.t set tenant = 'a' where id = 3"
MERGE = "merge into public.t using (values (%s)) v (id) on t.id = v.id when matched then "

MOVES = {
    "give": GIVE,
    "take": TAKE,
    "merge gives": MERGE % 1 + "update set tenant = 'b'",
    "merge takes": MERGE % 3 + "update set tenant = 'a'",
    "upsert gives": "insert into public.t values (1, 'b', 'x') on conflict (id) do update set tenant = excluded.tenant",
    "upsert takes": "insert into public.t values (3, 'a', 'x') on conflict (id) do update set tenant = excluded.tenant",
    "one of many": "update public.t set tenant = 'a'",
    "swap": "update public.t set tenant = case tenant when 'a' then 'b' else 'a' end where id in (1, 3)",
    "cte": "with w as (update public.t set tenant = 'b' where id = 1 returning 1) select * from w",
    "through a view": "update public.v set tenant = 'b' where id = 1",
    "delete and insert": "with d as (delete from public.t where id = 3 returning id) "
    "insert into public.t select 30, 'a', 'x' from d",
}


@pytest.fixture
def t(db: Database) -> str:
    db.execute("create table public.t (id int primary key, tenant text, body text)")
    db.execute("insert into public.t values (1, 'a', 'old'), (2, 'a', 'old'), (3, 'b', 'old'), (4, 'b', 'old')")
    db.execute("create view public.v as select * from public.t")
    db.execute("grant all on public.v to app")
    protect(db, "public.t", "tenant:{tenant}")
    return "public.t"


@pytest.fixture
def leases(db: Database) -> tuple[Lease, Lease]:
    return acquire(db, "tenant:a"), acquire(db, "tenant:b")


def refused(connection: Connection, claims: Sequence[Lease], statement: str) -> None:
    present(connection, *claims)
    with sqlstate("LF005"):
        connection.execute(statement)
    connection.rollback()


@pytest.mark.parametrize("kind", list(MOVES))
def test_a_move_needs_the_claims_of_both_sides(
    db: Database, t: str, leases: tuple[Lease, Lease], kind: str, isolation: psycopg.IsolationLevel
) -> None:
    if kind.startswith("merge") and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    before = contents(db, t)
    connection = db.connect("app", isolation=isolation)
    for lease in leases:
        refused(connection, [lease], MOVES[kind])
    assert contents(db, t) == before
    present(connection, *leases)
    connection.execute(MOVES[kind])
    connection.commit()
    assert contents(db, t) != before


@pytest.mark.parametrize("name", ["!x", "0_a", "a_x", "zzz_x", "Zz"])
@pytest.mark.parametrize("when", ["before insert or update", "before update of body"])
def test_what_a_rival_trigger_makes_of_the_row_is_what_counts(
    db: Database, t: str, leases: tuple[Lease, Lease], name: str, when: str
) -> None:
    """Whatever its name, and although the statement's own SET list does not name the key."""
    db.execute(
        "create function public.rival() returns trigger language plpgsql as "
        "$$ begin new.tenant := case new.tenant when 'a' then 'b' else new.tenant end; return new; end $$"
    )
    db.execute(f'create trigger "{name}" {when} on public.t for each row execute function public.rival()')
    before = contents(db, t)
    connection = db.connect("app")
    for lease in leases:
        refused(connection, [lease], "update public.t set body = 'new' where id = 1")
    if "insert" in when:
        refused(connection, [leases[0]], "insert into public.t values (9, 'a', 'new')")
    assert contents(db, t) == before


def test_a_rival_trigger_that_brings_the_row_back_is_harmless(
    db: Database, t: str, leases: tuple[Lease, Lease]
) -> None:
    db.execute(
        "create function public.rival() returns trigger language plpgsql as "
        "$$ begin new.tenant := old.tenant; return new; end $$"
    )
    db.execute("create trigger zzz before update on public.t for each row execute function public.rival()")
    connection = db.connect("app")
    present(connection, leases[0])
    assert connection.execute(GIVE).rowcount == 1


def test_a_rival_trigger_that_skips_rows_leaves_nothing_to_check(
    db: Database, t: str, leases: tuple[Lease, Lease]
) -> None:
    db.execute(
        "create function public.rival() returns trigger language plpgsql as "
        "$$ begin return case old.tenant when 'a' then new end; end $$"
    )
    db.execute("create trigger zzz before update on public.t for each row execute function public.rival()")
    connection = db.connect("app")
    present(connection, leases[0])
    assert connection.execute("update public.t set body = 'new'").rowcount == 2


def test_a_rival_after_trigger_that_moves_rows_is_a_write_of_its_own(
    db: Database, t: str, leases: tuple[Lease, Lease]
) -> None:
    db.execute(
        "create function public.rival() returns trigger language plpgsql as "
        "$$ begin update public.t set tenant = 'b' where id = new.id and tenant <> 'b'; return null; end $$"
    )
    db.execute("create trigger aaa after update on public.t for each row execute function public.rival()")
    refused(db.connect("app"), [leases[0]], "update public.t set body = 'new' where id = 1")


def test_a_generated_key_column_is_checked_with_its_final_value(
    db: Database, isolation: psycopg.IsolationLevel
) -> None:
    db.execute(
        "create table public.g (id int primary key, owner int, tenant text generated always as "
        "(case owner when 1 then 't1' else 't2' end) stored)"
    )
    db.execute("insert into public.g values (1, 1), (2, 2)")
    protect(db, "public.g", "tenant:{tenant}")
    one, two = acquire(db, "tenant:t1"), acquire(db, "tenant:t2")
    connection = db.connect("app", isolation=isolation)
    for lease in (one, two):
        refused(connection, [lease], "update public.g set owner = 2 where id = 1")
        refused(connection, [lease], "update public.g set owner = 1 where id = 2")
    refused(connection, [two], "insert into public.g values (3, 1)")
    present(connection, one, two)
    assert connection.execute("update public.g set owner = 2 where id = 1").rowcount == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [("region = null", "LF005"), ("region = 'us'", "LF005"), ("tenant = 'b'", "LF005"), ("tenant = 'a'", None)],
)
def test_one_column_of_a_composite_key_is_enough_for_a_move(db: Database, change: str, code: str | None) -> None:
    db.execute("create table public.c (id int primary key, tenant text, region text)")
    db.execute("insert into public.c values (1, 'a', 'eu')")
    protect(db, "public.c", "{tenant}/{region}")
    connection = db.connect("app")
    present(connection, acquire(db, "a/eu"))
    if code:
        with sqlstate(code):
            connection.execute(f"update public.c set {change}")
    else:
        assert connection.execute(f"update public.c set {change}").rowcount == 1


def test_a_row_that_changes_only_in_ways_the_column_calls_equal_still_moves(db: Database) -> None:
    """Differences that a lenient comparison would overlook are differences of the name."""
    db.execute("create table public.c (id int primary key, k text)")
    db.execute("insert into public.c values (1, 'a'), (2, E'e\\u0301')")
    protect(db, "public.c", "c:{k}")
    connection = db.connect("app")
    held = {key: acquire(db, f"c:{key}") for key in ("a", "e\u0301")}
    for number, key, other in ((1, "a", "a "), (1, "a", "A"), (2, "e\u0301", "\u00e9")):
        present(connection, held[key])
        with sqlstate("LF005"):
            connection.execute("update public.c set k = %s where id = %s", (other, number))
        connection.rollback()
