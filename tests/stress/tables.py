"""The guarded tables of the stress run, the writes to them, and a row's resource without asking pyfence."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import Connection, Database
from stress.checker import CLAIMED, LEASES, Guarded

IDS = range(1, 4)
TENANTS = ("a", "b")
REGIONS = ("eu", "us:1")
BUCKETS = (1, 2)

GUARDED: Mapping[str, Guarded] = {
    "public.single": Guarded(lambda row: f"single:{row['id']}", token_column="stamp"),
    "public.whole": Guarded(lambda row: "whole"),
    "public.pair": Guarded(lambda row: f"pair:{row['tenant']}:{str(row['region']).replace(':', '%3A')}"),
    "public.tree": Guarded(lambda row: f"tree:{row['tenant']}"),
    "public.once": Guarded(lambda row: f"once:{row['id']}", writes="once"),
    "public.numbered": Guarded(lambda row: f"numbered:{row['id']}", writes="sequenced"),
    "public.bulk": Guarded(
        lambda row: f"bulk:{row['id']}", token_column="stamp", covering="all of bulk", covers="bulk:"
    ),
}
_PROTECT: Mapping[str, tuple[str, str]] = {
    "public.single": ("single:{id}", ", p_token_column => 'stamp'"),
    "public.whole": ("whole", ", p_expiry => 'until_superseded'"),
    "public.pair": ("pair:{tenant}:{region}", ""),
    "public.tree": ("tree:{tenant}", ", p_expiry => 'until_superseded'"),
    "public.once": ("once:{id}", ", p_writes => 'once'"),
    "public.numbered": ("numbered:{id}", ", p_writes => 'sequenced'"),
    "public.bulk": (
        "bulk:{id}",
        ", p_covering => 'all of bulk', p_token_column => 'stamp', p_expiry => 'until_superseded'",
    ),
}
_SCHEMA = (
    f"create table {CLAIMED} (resource text not null, token bigint not null, sequence bigint)",
    "create table public.single (id int primary key, body int, stamp bigint)",
    "create table public.whole (id int primary key, body int)",
    "create table public.pair (tenant text, region text, id int, body int, primary key (tenant, region, id))",
    "create table public.tree (id int, tenant text, bucket int, body int) partition by list (bucket)",
    "create table public.tree_1 partition of public.tree for values in (1)",
    "create table public.tree_2 partition of public.tree for values in (2) partition by list (tenant)",
    "create table public.tree_2a partition of public.tree_2 for values in ('a')",
    "create table public.tree_2b partition of public.tree_2 for values in ('b')",
    "create table public.once (id int primary key, body int)",
    "create table public.numbered (id int primary key, body int)",
    "create table public.bulk (id int primary key, body int, stamp bigint)",
)
RECORDED = (LEASES, CLAIMED)


def make(db: Database) -> None:
    """Create, fill and protect the tables."""
    for statement in _SCHEMA:
        db.execute(statement)
    for table in ("single", "whole", "once", "numbered", "bulk"):
        db.execute(f"insert into public.{table} (id, body) select n, 0 from generate_series(1, {max(IDS)}) n")
    for tenant in TENANTS:
        for region in REGIONS:
            db.execute("insert into public.pair values (%s, %s, 1, 0)", (tenant, region))
        db.execute("insert into public.tree select n, %s, 1, 0 from generate_series(1, 4) n", (tenant,))
    for table, (template, options) in _PROTECT.items():
        db.execute(f"select fence.protect(%s, %s{options})", (table, template))


@dataclass(frozen=True)
class Write:
    """A statement, the values for it, and the resources that it needs claims on."""

    resources: frozenset[str]
    statement: str
    values: Sequence[Any] = ()

    def run(self, connection: Connection) -> None:
        connection.execute(self.statement, self.values)


Choose = random.Random


def _single(choose: Choose, version: int) -> Write:
    number = choose.choice(IDS)
    statement = choose.choice(
        (
            "update public.single set body = body + 1 where id = %s",
            "update public.single set body = body + 1, stamp = -1 where id = %s",
            "insert into public.single values (%s, 0) on conflict (id) do update set body = excluded.body",
            "with gone as (delete from public.single where id = %s returning *) select from gone",
            "insert into public.single values (%s, 7) on conflict do nothing",
            "do $$ begin update public.single set body = 9 where id = %s; "
            "exception when lock_not_available then null; end $$",
        )
    )
    if statement.startswith("do "):
        statement = statement.replace("%s", str(number))
        return Write(frozenset({f"single:{number}"}), statement)
    return Write(frozenset({f"single:{number}"}), statement, (number,))


def _whole(choose: Choose, version: int) -> Write:
    statement = choose.choice(
        (
            "update public.whole set body = body + 1",
            "update public.whole set body = body + 1 where id = 1",
            "insert into public.whole values (2, 0) on conflict (id) do update set body = 1",
            "delete from public.whole where id = 3",
            "insert into public.whole values (3, 0) on conflict do nothing",
        )
    )
    return Write(frozenset({"whole"}), statement)


def _pair_name(tenant: str, region: str) -> str:
    return f"pair:{tenant}:{region.replace(':', '%3A')}"


def _pair(choose: Choose, version: int) -> Write:
    """Change a row, or move it to another resource; unless one is there, which is fine."""
    tenant, region = choose.choice(TENANTS), choose.choice(REGIONS)
    other, there = choose.choice(TENANTS), choose.choice(REGIONS)
    kind = choose.randrange(4)
    if kind == 0:
        names = {_pair_name(tenant, region), _pair_name(other, there)}
        move = (
            "update public.pair p set tenant = %s, region = %s where tenant = %s and region = %s and not exists "
            "(select from public.pair q where q.tenant = %s and q.region = %s)"
        )
        return Write(frozenset(names), move, (other, there, tenant, region, other, there))
    names = {_pair_name(tenant, region)}
    if kind == 1:
        fill = "insert into public.pair values (%s, %s, 1, 0) on conflict do nothing"
        return Write(frozenset(names), fill, (tenant, region))
    change = "update public.pair set body = body + 1 where tenant = %s and region = %s"
    return Write(frozenset(names), change, (tenant, region))


def _tree(choose: Choose, version: int) -> Write:
    """Change rows through root or leaf, move them between partitions by UPDATE and MERGE, with and without the key."""
    tenant, other = choose.choice(TENANTS), choose.choice(TENANTS)
    number, bucket = choose.randint(1, 4), choose.choice(BUCKETS)
    mine, both = frozenset({f"tree:{tenant}"}), frozenset({f"tree:{tenant}", f"tree:{other}"})
    kind = choose.randrange(7 if version >= 15 else 5)
    if kind == 0:
        return Write(mine, "update public.tree set body = body + 1 where tenant = %s and id = %s", (tenant, number))
    if kind == 1:
        return Write(mine, "update public.tree set bucket = %s where tenant = %s and id = %s", (bucket, tenant, number))
    if kind == 2:
        move = "update public.tree set bucket = %s, tenant = %s where tenant = %s and id = %s"
        return Write(both, move, (bucket, other, tenant, number))
    if kind == 3:
        leaf = choose.choice(("tree_1", f"tree_2{tenant}"))
        return Write(mine, f"update public.{leaf} set body = body + 1 where tenant = %s", (tenant,))
    if kind == 4:
        again = (
            "with gone as (delete from public.tree where tenant = %s and id = %s returning *) "
            "insert into public.tree select id, tenant, %s, body from gone"
        )
        return Write(mine, again, (tenant, number, bucket))
    if kind == 5:
        merge = (
            "merge into public.tree t using (select %s::int as id, %s as tenant) s "
            "on t.id = s.id and t.tenant = s.tenant "
            "when matched then update set bucket = %s, body = t.body + 1 "
            "when not matched then insert values (s.id, s.tenant, 1, 0)"
        )
        return Write(mine, merge, (number, tenant, bucket))
    merge = (
        "merge into public.tree t using (select %s::int as id, %s as tenant) s "
        "on t.id = s.id and t.tenant = s.tenant "
        "when matched then update set bucket = %s, tenant = %s"
    )
    return Write(both, merge, (number, tenant, bucket, other))


def _once(choose: Choose, version: int) -> Write:
    number = choose.choice(IDS)
    return Write(frozenset({f"once:{number}"}), "update public.once set body = body + 1 where id = %s", (number,))


def _numbered(choose: Choose, version: int) -> Write:
    number = choose.choice(IDS)
    return Write(
        frozenset({f"numbered:{number}"}), "update public.numbered set body = body + 1 where id = %s", (number,)
    )


def _bulk(choose: Choose, version: int) -> Write:
    """Single rows under their own leases, and all of them under the covering one."""
    number = choose.choice(IDS)
    if choose.random() < 0.6:
        return Write(frozenset({f"bulk:{number}"}), "update public.bulk set body = body + 1 where id = %s", (number,))
    statement = choose.choice(
        (
            "update public.bulk set body = body + 1",
            "update public.bulk set body = 0 where id > 1",
            "insert into public.bulk select n, 0 from generate_series(1, 3) n "
            "on conflict (id) do update set body = excluded.body",
        )
    )
    return Write(frozenset({"all of bulk"}), statement)


KINDS: Sequence[Callable[[Choose, int], Write]] = (
    _single,
    _single,
    _whole,
    _pair,
    _pair,
    _tree,
    _tree,
    _once,
    _numbered,
    _bulk,
    _bulk,
)


def choose_write(choose: Choose, version: int) -> Write:
    """Any of the writes; `version` is the server's major."""
    return choose.choice(KINDS)(choose, version)
