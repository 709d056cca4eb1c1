#!/usr/bin/env python3
"""The cases that `pyfence bench` leaves out: many claims, wide tables, a million rows, partitions, and one hot lease.

    .venv/bin/python bench/extended.py > bench/results/<date>-<commit>-extended.json
    .venv/bin/python bench/extended.py --rows 100000 --seconds 2 --rounds 3 hot-lease     # some of it, smaller

Same rules as `pyfence bench`: servers of its own, both sides in turns, medians of the rounds' own ratios.
Takes about ten minutes on an idle machine.
"""

# ruff: noqa: S608 - every name in the statements is made here

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from pyfence import _programs
from pyfence.bench import _report, _sql
from pyfence.bench._groups import SINGLE_ROWS
from pyfence.bench._measure import Group, Meter, Variant, measured
from pyfence.bench._place import SETTINGS, Place, own_server

SCHEMA = _sql.SCHEMA
FILL = "with (fillfactor = 45, autovacuum_enabled = false)"
Claims = list[tuple[str, int, str]]
#: What a check in PL/pgSQL cannot be cheaper than. `empty_present` leaves a mark, so that no claim is missed.
EMPTY = (
    f"create or replace function {SCHEMA}.empty_present(text, bigint, text) returns void language plpgsql "
    "security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' "
    "as $$ begin perform set_config('fence.claims', 'x', true); end $$",
    f"create or replace function {SCHEMA}.empty_guard() returns trigger language plpgsql security definer "
    "set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$ begin return null; end $$",
)
EMPTY_PRESENT = f"select {SCHEMA}.empty_present(%s, %s, %s)"
Present = tuple[str, tuple[Any, ...]] | None  # what presents the claims, and its values


def _all_of(held: Claims | None) -> Present:
    """One call that presents all of the claims."""
    return None if held is None else (_sql.PRESENT_ALL, tuple(map(list, zip(*held, strict=True))))


# -- in processor time, one backend -----------------------------------------------------------------------------------


class Cases:
    """Builds tables, guards and leases, and the groups that are measured on them."""

    def __init__(self, place: Place, rows: int, rounds: int) -> None:
        self.place, self.rows, self.rounds = place, rows, rounds
        place.connection.execute(_sql.DURABLE[False])

    def claims(self) -> Group:
        """A bulk UPDATE of all rows, which belong to 1, 10 or 1,000 resources."""
        variants = [Variant("unguarded", self._bulk(self._plain("claims_plain", 1000)))]
        for count, target in ((1, 1.75), (10, 1.75), (1000, 2.0)):
            name = self._plain(f"claims_{count}", count)
            held = self._guard(name, f"claims_{count}:{{tenant}}", range(count))
            variants.append(Variant(f"row scope, {count} claims", self._bulk(name, held), target=target))
        return self._group(f"bulk UPDATE, {self.rows} rows", "row", self.rows, variants)

    def columns(self, count: int) -> Group:
        """The same on a table of so many columns; fewer rows, for they are larger."""
        rows = max(self.rows // count, 1000)
        variants = []
        for name, guarded in ((f"wide_{count}_plain", False), (f"wide_{count}", True)):
            more = ", ".join(f"c{number} int not null default {number}" for number in range(count - 3))
            self._run(f"create table {SCHEMA}.{name} (id int primary key, tenant int, amount int, {more}) {FILL}")
            self._run(f"insert into {SCHEMA}.{name} select n, n % 10, 0 from generate_series(1, {rows}) n")
            held = self._guard(name, f"{name}:{{tenant}}", range(10)) if guarded else None
            variants.append(
                Variant("row scope, 10 claims" if guarded else "unguarded", self._bulk(name, held), target=1.75)
            )
        return self._group(f"bulk UPDATE, {count} columns, {rows} rows", "row", rows, variants)

    def partitions(self, through: str) -> Group:
        """A bulk UPDATE of one partition, through the leaf or through the root."""
        rows = self.rows // 4
        variants = []
        for guarded in (False, True):
            name = f"tree_{through}_{'guarded' if guarded else 'plain'}"
            columns = "(id int, tenant int not null, amount int not null, body text not null, primary key (id))"
            self._run(f"create table {SCHEMA}.{name} {columns} partition by range (id)")
            for part in range(2):
                low, high = part * rows, (part + 1) * rows
                self._run(
                    f"create table {SCHEMA}.{name}_{part} partition of {SCHEMA}.{name} "
                    f"for values from ({low}) to ({high}) {FILL}"
                )
            self._run(
                f"insert into {SCHEMA}.{name} "
                f"select n, n % 10, 0, repeat('x', 40) from generate_series(0, {rows - 1}) n"
            )
            held = self._guard(name, f"{name}:{{tenant}}", range(10)) if guarded else None
            target = f"{name}_0" if through == "leaf" else name
            label = "row scope, 10 claims" if guarded else "unguarded"
            variants.append(Variant(label, self._bulk(target, held), target=1.75))
        return self._group(f"bulk UPDATE of a partition through the {through}, {rows} rows", "row", rows, variants)

    def plain(self) -> Group:
        """The plain table that partitions are to be compared with."""
        rows, self.rows = self.rows, self.rows // 4
        variants = [Variant("unguarded", self._bulk(self._plain("beside_plain", 10)))]
        name = self._plain("beside_guarded", 10)
        held = self._guard(name, "beside:{tenant}", range(10))
        variants.append(Variant("row scope, 10 claims", self._bulk(name, held), target=1.75))
        group = self._group(f"bulk UPDATE of a plain table, {self.rows} rows", "row", self.rows, variants)
        self.rows = rows
        return group

    def statements(self, claims: int) -> Group:
        """Statements of one row each, 500 in one transaction: what is above the unguarded ones is the guard itself."""
        count = 500
        variants = []
        for guarded in (False, True):
            name = f"single_{claims}_{'guarded' if guarded else 'plain'}"
            self._plain(name, claims, SINGLE_ROWS)
            held = self._guard(name, f"{name}:{{tenant}}", range(claims)) if guarded else None
            label = f"row scope, {claims} claims" if guarded else "unguarded"
            variants.append(Variant(label, self._singles(name, count, _all_of(held))))
        return self._group(f"UPDATE of one row, {count} in a transaction", "statement", count, variants)

    def floor(self, count: int) -> Group:
        """So many one-row updates in a transaction: guarded, and with the same calls of empty functions."""
        kinds = ("plain", "empty", "guarded")
        plain, empty, name = (self._plain(f"floor_{count}_{kind}", 1, SINGLE_ROWS) for kind in kinds)
        held = self._guard(name, f"{name}:{{tenant}}", range(1))
        for statement in EMPTY:
            self._run(statement)
        for trigger, definition in self.place.owner.execute(
            "select tgname, pg_get_triggerdef(oid) from pg_trigger where tgrelid = %s::regclass order by tgname",
            (f"{SCHEMA}.{name}",),
        ).fetchall():
            definition = definition.replace(f"{SCHEMA}.{name}", f"{SCHEMA}.{empty}")
            self._run(re.sub(r"fence\._guard_\d+", f"{SCHEMA}.empty_guard", definition))
            self._run(f'alter table {SCHEMA}.{empty} enable always trigger "{trigger}"')
        times = 1000 // count
        return self._group(
            f"transaction of {count} one-row updates",
            "transaction",
            times,
            [
                Variant("unguarded", self._singles(plain, count, times=times)),
                Variant("empty functions", self._singles(empty, count, (EMPTY_PRESENT, held[0]), times)),
                Variant("guarded", self._singles(name, count, (_sql.PRESENT, held[0]), times)),
            ],
        )

    def _plain(self, name: str, tenants: int, rows: int | None = None) -> str:
        self._run(
            f"create table {SCHEMA}.{name} "
            f"(id int not null, tenant int not null, amount int not null, body text not null, primary key (id)) {FILL}"
        )
        self._run(
            f"insert into {SCHEMA}.{name} "
            f"select n, n % {tenants}, 0, repeat('x', 40) from generate_series(1, {rows or self.rows}) n"
        )
        return name

    def _guard(self, name: str, template: str, tenants: range) -> Claims:
        self.place.owner.execute(_sql.PROTECT, (f"{SCHEMA}.{name}", template))
        names = [template.format(tenant=tenant) for tenant in tenants]
        return [(resource, *self.place.acquire(resource)) for resource in names]

    def _bulk(self, name: str, held: Claims | None = None) -> Callable[[int], object]:
        return self._transaction(_all_of(held), lambda: [(f"update {SCHEMA}.{name} set amount = amount + 1", ())])

    def _singles(self, name: str, count: int, present: Present = None, times: int = 1) -> Callable[[int], object]:
        numbers = cycle(range(1, SINGLE_ROWS, 7))
        update = f"update {SCHEMA}.{name} set amount = amount + 1 where id = %s"
        return self._transaction(present, lambda: ((update, (next(numbers),)) for _ in range(count)), times)

    def _transaction(self, present: Present, statements: Callable[[], Any], times: int = 1) -> Callable[[int], object]:
        connection = self.place.connection

        def run(number: int) -> None:
            for _ in range(times):
                connection.execute("begin")
                if present is not None:
                    connection.execute(*present)
                for statement, values in statements():
                    connection.execute(statement, values)
                connection.execute("commit")

        return run

    def _group(self, name: str, each: str, operations: int, variants: list[Variant]) -> Group:
        def tidy() -> None:
            for (table,) in self.place.owner.execute(
                "select oid::regclass::text from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
                (SCHEMA,),
            ).fetchall():
                self.place.owner.execute(f"vacuum {table}")
            self.place.owner.execute(_sql.VACUUM_LEASES)

        tidy()
        return Group(name, each, operations, self.rounds, variants, tidy)

    def _run(self, statement: str) -> None:
        self.place.owner.execute(statement)

    def forget(self) -> None:
        """Drop the tables of one group before the next: they are large."""
        for (table,) in self.place.owner.execute(
            "select oid::regclass::text from pg_class where relnamespace = %s::regnamespace "
            "and relkind in ('r', 'p') and not relispartition",
            (SCHEMA,),
        ).fetchall():
            self.place.owner.execute(f"drop table {table}")


# -- in throughput, many clients --------------------------------------------------------------------------------------

ROWS_EACH = 150  # each client writes rows of its own: what is measured is the lease, not the rows
UNGUARDED = """
\\set id random(1, {rows}) + :client_id * {rows}
begin;
update {schema}.{table} set amount = amount + 1 where id = :id;
commit;
"""
GUARDED = """
\\set id random(1, {rows}) + :client_id * {rows}
begin;
select fence.present(resource, token, secret) from {schema}.held where client = {client};
update {schema}.{table} set amount = amount + 1 where id = :id;
commit;
"""


def hot_lease(place: Place, url: str, *, clients: int, seconds: int, rounds: int) -> dict[str, Any]:
    """`clients` connections that write at the same time: unguarded, under one lease, and each under one of its own."""
    owner = place.owner
    with tempfile.TemporaryDirectory() as folder:
        owner.execute(f"create table {SCHEMA}.held (client int primary key, resource text, token bigint, secret text)")
        for name in ("free", "hot", "own"):
            owner.execute(f"create table {SCHEMA}.{name} (id int primary key, tenant int, amount int) {FILL}")
            owner.execute(
                f"insert into {SCHEMA}.{name} select n, (n - 1) / {ROWS_EACH}, 0 "
                f"from generate_series(1, {ROWS_EACH * clients}) n"
            )
        owner.execute(_sql.PROTECT, (f"{SCHEMA}.hot", "hot"))
        owner.execute(_sql.PROTECT, (f"{SCHEMA}.own", "own:{tenant}"))
        for client in range(-1, clients):
            resource = "hot" if client < 0 else f"own:{client}"
            token, secret = place.acquire(resource)
            owner.execute(f"insert into {SCHEMA}.held values (%s, %s, %s, %s)", (client, resource, token, secret))
        scripts = {
            "unguarded": UNGUARDED.format(schema=SCHEMA, table="free", rows=ROWS_EACH),
            "one lease": GUARDED.format(schema=SCHEMA, table="hot", rows=ROWS_EACH, client="-1"),
            "a lease each": GUARDED.format(schema=SCHEMA, table="own", rows=ROWS_EACH, client=":client_id"),
        }
        rates: dict[str, list[float]] = {name: [] for name in scripts}
        multis: dict[str, list[float]] = {name: [] for name in scripts}
        cpus: dict[str, list[float]] = {name: [] for name in scripts}
        for number in range(rounds + 1):
            names = list(scripts)
            for name in names[number % 3 :] + names[: number % 3]:
                before, cpu = _next_multixact(owner), _backends_cpu(owner)
                rate, count = _pgbench(url, folder, scripts[name], clients, seconds)
                if number and count:
                    cpus[name].append((_backends_cpu(owner) - cpu) / count * 1e6)
                    rates[name].append(rate)
                    multis[name].append((_next_multixact(owner) - before) / max(count, 1))
            for table in ("free", "hot", "own"):
                owner.execute(f"vacuum {SCHEMA}.{table}")
            owner.execute(_sql.VACUUM_LEASES)
    return {
        "clients": clients,
        "rounds": rounds,
        "seconds": seconds,
        "server": place.described,
        "transactions_per_second": {name: round(median(found)) for name, found in rates.items()},
        "ratio": {
            name: round(median(of / max(over, 1) for of, over in zip(rates[name], rates["unguarded"], strict=True)), 3)
            for name in scripts
        },
        "one_lease_against_a_lease_each": round(
            median(of / max(over, 1) for of, over in zip(rates["one lease"], rates["a lease each"], strict=True)), 3
        ),
        "cpu_us_per_transaction": {name: round(median(found), 1) for name, found in cpus.items()},
        "multixacts_per_transaction": {name: round(median(found), 4) for name, found in multis.items()},
    }


def _next_multixact(owner: psycopg.Connection[Any]) -> int:
    owner.execute("checkpoint")
    row = owner.execute("select next_multixact_id::text::bigint from pg_control_checkpoint()").fetchone()
    assert row is not None
    return int(row[0])


def _backends_cpu(owner: psycopg.Connection[Any]) -> float:
    """Seconds of processor time of the server's processes that have ended; pgbench's are waited for."""
    while owner.execute("select from pg_stat_activity where application_name = 'pgbench'").fetchall():
        time.sleep(0.02)
    time.sleep(0.05)  # until the postmaster has collected the last
    parent = Path(f"/proc/{owner.info.backend_pid}/stat").read_text().rpartition(")")[2].split()[1]
    fields = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _pgbench(url: str, folder: str, script: str, clients: int, seconds: int) -> tuple[float, int]:
    path = Path(folder) / "script.sql"
    path.write_text(script)
    program = _programs.find_bindir() / "pgbench"
    command = [str(program), "--no-vacuum", "--protocol=prepared", f"--client={clients}", "--jobs=1"]
    done = subprocess.run(
        [*command, f"--time={seconds}", f"--file={path}", url], capture_output=True, text=True, check=False
    )
    rate = re.search(r"tps = ([\d.]+)", done.stdout)
    count = re.search(r"actually processed: (\d+)", done.stdout)
    if done.returncode != 0 or count is None:
        sys.exit(f"pgbench failed: {done.stdout[-500:]} {done.stderr[-2000:]}")
    return float(rate[1]) if rate else 0.0, int(count[1])  # it prints no rate where nothing was committed in time


# -- all of it --------------------------------------------------------------------------------------------------------


def groups(cases: Cases, chosen: Callable[[str], bool]) -> Iterator[Group]:
    """The groups, each built when its turn comes."""
    if chosen("claims"):
        yield cases.claims()
    for count in (10, 200):
        if chosen("columns"):
            yield cases.columns(count)
    if chosen("partitions"):
        yield cases.plain()
        for through in ("leaf", "root"):
            yield cases.partitions(through)
    for claims in (1, 1000):
        if chosen("statements"):
            yield cases.statements(claims)
    for count in (1, 200):
        if chosen("floor"):
            yield cases.floor(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", help="claims, columns, partitions, statements, floor, hot-lease; default: all"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the bulk updates")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=5, help="of one run of pgbench")
    options = parser.parse_args()

    def chosen(name: str) -> bool:
        return not options.cases or name in options.cases

    out: dict[str, Any] = {"machine": _report.machine(), "rows": options.rows, "results": [], "hot_lease": []}
    SETTINGS["max_wal_size"] = "16GB"
    if any(chosen(name) for name in ("claims", "columns", "partitions", "statements", "floor")):
        with own_server(durable=False) as place:
            out["server"] = place.described
            cases, meter = Cases(place, options.rows, options.rounds), Meter(place.connection)
            for group in groups(cases, chosen):
                print(f"measuring: {group.name} ...", file=sys.stderr)
                out["results"] += _report.as_json(measured(group, meter))
                cases.forget()
    if chosen("hot-lease"):
        SETTINGS["max_connections"] = options.clients + 20
        for durable in (False, True):
            with own_server(durable=durable) as place:
                print(f"measuring: hot lease, {place.described} ...", file=sys.stderr)
                found = hot_lease(
                    place,
                    _url(place),
                    clients=options.clients,
                    seconds=options.seconds,
                    rounds=options.rounds,
                )
                out["hot_lease"].append({"durable": durable, **found})
    print(json.dumps(out, indent=2))


def _url(place: Place) -> str:
    info = place.connection.info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"


if __name__ == "__main__":
    main()
