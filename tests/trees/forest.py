"""A partitioned table with every kind of partition, and what the tests of trees do with it."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from guards.scene import Lease, acquire, present
from harness import Connection, Database

#: By date; February by tenant, tenant b's part of it by hash. The resource is the tenant: not what decides the leaf.
TREE = """
create table public.t (id int, tenant text, day date, body text default 'old') partition by range (day);
create table public.jan partition of public.t for values from ('2026-01-01') to ('2026-02-01');
create table public.feb partition of public.t for values from ('2026-02-01') to ('2026-03-01')
  partition by list (tenant);
create table public.feb_a partition of public.feb for values in ('a');
create table public.feb_b partition of public.feb for values in ('b') partition by hash (id);
create table public.feb_b0 partition of public.feb_b for values with (modulus 2, remainder 0);
create table public.feb_b1 partition of public.feb_b for values with (modulus 2, remainder 1);
create table public.feb_rest partition of public.feb default;
create table public.rest partition of public.t default;
insert into public.t (id, tenant, day) values
  (1, 'a', '2026-01-05'), (2, 'b', '2026-01-05'), (3, 'a', '2026-02-05'), (4, 'b', '2026-02-05'),
  (5, 'c', '2026-02-05'),
  (6, 'a', '2027-01-01'), (7, 'b', '2027-01-01'), (8, 'b', '2026-02-06'), (9, 'b', '2026-02-07');
"""
PARTS = ("t", "jan", "feb", "feb_a", "feb_b", "feb_b0", "feb_b1", "feb_rest", "rest")
TEMPLATE = "tenant:{tenant}"


def plant(db: Database, template: str = TEMPLATE, **options: Any) -> None:
    """The tree, its partitions open to the application, protected."""
    db.execute(TREE)
    db.execute("grant all on all tables in schema public to app, outsider")
    more = "".join(f", {name} => %s" for name in options)
    db.execute(f"select fence.protect('public.t', %s{more})", (template, *options.values()))


def tenants(db: Database, names: str = "abc") -> dict[str, Lease]:
    return {name: acquire(db, f"tenant:{name}") for name in names}


def attempt(connection: Connection, statement: str, *leases: Lease) -> str | int:
    """The SQLSTATE that refuses a statement under these claims, or its row count; rolled back either way."""
    try:
        present(connection, *leases)
        return connection.execute(statement).rowcount
    except psycopg.Error as error:
        return str(error.sqlstate)
    finally:
        connection.rollback()


def copy_in(connection: Connection, table: str, row: tuple[Any, ...], *leases: Lease) -> str | int:
    """The same for a COPY of one row."""
    try:
        present(connection, *leases)
        with connection.cursor() as cursor:
            with cursor.copy(f"copy public.{table} (id, tenant, day) from stdin") as copy:
                copy.write_row(row)
            return cursor.rowcount
    except psycopg.Error as error:
        return str(error.sqlstate)
    finally:
        connection.rollback()


def whereabouts(db: Database, table: str = "public.t") -> list[Any]:
    """Every row with the partition it lies in."""
    return db.execute(
        f"select (select relname::text from pg_class where oid = t.tableoid), t.* from {table} t order by t::text, 1",
        user="postgres",
    )


def trigger_calls(connection: Connection, statement: str) -> dict[str, int]:
    """What EXPLAIN ANALYZE says of the triggers that a statement called."""
    plan = "\n".join(line for (line,) in connection.execute(f"explain (analyze, costs off) {statement}").fetchall())
    found = re.findall(r"^Trigger (\S+)(?: on \S+)?: .*calls=(\d+)", plan, re.M)
    return {name: sum(int(calls) for other, calls in found if other == name) for name, _ in found}


def armed(db: Database, table: str = "public.t") -> bool:
    ((state,),) = db.execute("select armed from fence.protected_tables where protected_table = %s::regclass", (table,))
    return bool(state)


def guard_triggers(db: Database, *, pattern: str = "0_fence") -> dict[tuple[str, str], str]:
    """The state of every trigger of guards, by table and name."""
    rows = db.execute(
        "select t.tgrelid::regclass::text, t.tgname::text, t.tgenabled::text from pg_trigger t "
        "join pg_proc p on p.oid = t.tgfoid where p.pronamespace = 'fence'::regnamespace and t.tgname ~ %s "
        "and t.tgrelid not in (select oid from pg_class where relnamespace = 'fence'::regnamespace)",
        (pattern,),
        user="postgres",
    )
    return {(table, name): state for table, name, state in rows}
