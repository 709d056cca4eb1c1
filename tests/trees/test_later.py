"""Partitions that come, go and come back after the table was protected, with no command of pyfence run."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, check_refusal, present, protect, release
from harness import SUPERUSER, Connection, Database, sqlstate
from trees.forest import TEMPLATE, armed, attempt, copy_in, guard_triggers, plant, tenants, trigger_calls, whereabouts

MARCH = "for values from ('2026-03-01') to ('2026-04-01')"
LIKE = "(id int, body text default 'old', tenant text, junk int, day date)"
#: How a partition comes to be: statements, its name, the table right above it, a row for it.
WAYS = {
    "partition of the root": ([f"create table public.new partition of public.t {MARCH}"], "t", "2026-03-05"),
    "attached to the root": (
        [
            f"create table public.new {LIKE}",
            "alter table public.new drop column junk",
            "create unique index on public.new (id)",
            f"alter table public.t attach partition public.new {MARCH}",
        ],
        "t",
        "2026-03-05",
    ),
    "partition of a middle table": (
        ["create table public.new partition of public.feb for values in ('d')"],
        "feb",
        "2026-02-05",
    ),
    "attached to a middle table": (
        [
            f"create table public.new {LIKE}",
            "alter table public.new drop column junk, add primary key (id)",
            "alter table public.feb attach partition public.new for values in ('d')",
        ],
        "feb",
        "2026-02-05",
    ),
    "a whole branch": (
        [
            f"create table public.branch partition of public.t {MARCH} partition by list (tenant)",
            "create table public.new partition of public.branch default",
        ],
        "branch",
        "2026-03-05",
    ),
    "an attached branch": (
        [
            "create table public.branch (like public.t) partition by hash (tenant)",
            "create table public.new partition of public.branch for values with (modulus 1, remainder 0)",
            f"alter table public.t attach partition public.branch {MARCH}",
        ],
        "branch",
        "2026-03-05",
    ),
}


@pytest.mark.parametrize("template", [TEMPLATE, "nightly"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_partition_made_later_refuses_at_once(db: Database, way: str, template: str) -> None:
    statements, above, day = WAYS[way]
    plant(db, template)
    for statement in statements:
        db.execute(statement)
    db.execute("grant all on all tables in schema public to app, outsider")
    assert not armed(db)
    told = db.execute("select severity, code from fence.audit() where object in ('public.new', 'public.branch')")
    assert "partition-unarmed" in [code for _, code in told]
    if template == TEMPLATE:  # of a table scope nothing but statements is checked
        assert ("warning", "partition-unarmed") in told
        assert "error" not in [severity for severity, _ in told]
    wanted = acquire(db, "tenant:d" if template == TEMPLATE else "nightly")
    other = acquire(db, "tenant:a")
    insert = f"insert into public.{{}} (id, tenant, day) values (20, 'd', '{day}')"
    loader = db.connect("app")
    present(loader, wanted)
    loader.execute(insert.format("t"))
    loader.commit()
    before = whereabouts(db)
    assert ("new", 20) in [row[:2] for row in before]
    writes = [insert, "update public.{} set body = 'new' where id = 20", "delete from public.{} where id = 20"]
    if db.cluster.version >= 15:
        writes.append(
            "merge into public.{} t using (values (20)) v (n) on id = v.n when matched then update set body = 'x'"
        )
        writes.append("merge into public.{} t using (values (20)) v (n) on id = v.n when matched then delete")
    connection = db.connect("app", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    for armed_again in (False, True):
        for table in ("t", above, "new"):
            for statement in writes:
                text = statement.format(table)
                if "attached" in way and "insert" in text:
                    text = text.replace("(20,", "(21,")  # its own index would answer first
                answers = [attempt(connection, text, *claims) for claims in ([], [other])]
                assert answers == ["LF004", "LF005"], (armed_again, table, statement)
                if "insert" not in text:
                    assert attempt(connection, text, wanted) == 1
            row = (22, "d", day)
            assert [copy_in(connection, table, row, *claims) for claims in ([], [other], [wanted])] == [
                "LF004",
                "LF005",
                1,
            ]
            with sqlstate("LF004") as refused:
                db.connect("outsider").execute(writes[1].format(table))
            check_refusal(refused.diag, table=refused.diag.table_name)
        assert attempt(connection, "truncate public.t") == "LF004"
        # the one gap: TRUNCATE of the new table itself, until somebody arms it
        assert attempt(connection, "truncate public.new") == ("LF004" if armed_again else -1)
        if not armed_again:
            protect(db, "public.t", template)
            assert armed(db)
    assert whereabouts(db) == before


def test_the_gap_is_closed_by_repair(db: Database) -> None:
    plant(db)
    db.execute(WAYS["a whole branch"][0][0])
    db.execute(WAYS["a whole branch"][0][1])
    db.execute("grant all on all tables in schema public to app")
    assert not armed(db)
    assert db.execute("select fence.repair('public.t')") == [(1,)]
    assert armed(db)
    connection = db.connect("app")
    assert attempt(connection, "truncate public.new") == "LF004"
    assert attempt(connection, "truncate public.branch") == "LF004"


@pytest.mark.parametrize("way", ["partition of the root", "a whole branch", "an attached branch"])
def test_moves_into_and_out_of_a_new_partition(db: Database, way: str, isolation: psycopg.IsolationLevel) -> None:
    statements, _, day = WAYS[way]
    plant(db)
    for statement in statements:
        db.execute(statement)
    leases = tenants(db)
    before = whereabouts(db)
    connection = db.connect("app", isolation=isolation)
    verbs = ["update public.t set {} where id = {}"]
    if db.cluster.version >= 15:
        verbs.append("merge into public.t using (values ({1})) v (n) on id = v.n when matched then update set {0}")
    for verb in verbs:
        inward = verb.format(f"day = '{day}'", 1)
        stolen = verb.format(f"day = '{day}', tenant = 'b'", 1)
        assert attempt(connection, inward) == "LF004"
        assert attempt(connection, inward, leases["b"]) == "LF005"
        assert attempt(connection, inward, leases["a"]) == 1
        assert attempt(connection, stolen, leases["a"]) == "LF005"
        assert attempt(connection, stolen, leases["b"]) == "LF005"
        assert attempt(connection, stolen, leases["a"], leases["b"]) == 1
        outward = verb.format("day = '2026-01-05'", 1)
        for claims, answer in ((["b"], "LF005"), (["a"], 1)):
            present(connection, leases["a"])
            connection.execute(inward)
            assert whereabouts(db) == before
            connection.commit()
            assert attempt(connection, outward, *[leases[name] for name in claims]) == answer
            present(connection, leases["a"])
            connection.execute(outward)
            connection.commit()
    assert whereabouts(db) == before


def test_a_new_level_with_another_key_than_the_guard_knows(db: Database) -> None:
    """A branch partitioned by a column that decided nothing so far: rows are looked at singly until it is armed."""
    if db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    plant(db)
    db.execute(f"create table public.branch partition of public.t {MARCH} partition by list (body)")
    db.execute("create table public.old partition of public.branch for values in ('old')")
    db.execute("create table public.new partition of public.branch for values in ('new')")
    leases = tenants(db)
    connection = db.connect("app")
    present(connection, leases["a"])
    connection.execute("insert into public.t (id, tenant, day) values (20, 'a', '2026-03-05')")
    connection.commit()
    statement = "merge into public.{} using (values (20)) v (n) on id = v.n when matched then update set body = 'new'"
    for _ in range(2):
        for table in ("t", "branch"):
            assert attempt(connection, statement.format(table)) == "LF004"
            assert attempt(connection, statement.format(table), leases["b"]) == "LF005"
            assert attempt(connection, statement.format(table), leases["a"]) == 1
        protect(db, "public.t", TEMPLATE)
        assert armed(db)


# -- detached, written, attached --------------------------------------------------------------------------------------


def test_a_detached_partition_stays_guarded_until_it_has_a_guard_of_its_own(db: Database) -> None:
    plant(db)
    leases = tenants(db)
    connection = db.connect("app")
    db.execute("alter table public.t detach partition public.jan")
    statement = "update public.jan set body = 'new' where id = 1"
    assert [attempt(connection, statement, *[leases[n] for n in names]) for names in ("", "b", "a")] == [
        "LF004",
        "LF005",
        1,
    ]
    assert attempt(connection, "truncate public.jan", leases["a"]) == "LF005"
    with sqlstate("LF010"):  # the guard is the tree's
        db.execute("select fence.unprotect('public.jan')")
    assert armed(db)
    protect(db, "public.jan", "old:{id}")
    assert armed(db)
    assert armed(db, "public.jan")
    assert attempt(connection, statement, leases["a"]) == "LF005"
    assert attempt(connection, statement, acquire(db, "old:1")) == 1
    assert attempt(connection, "update public.t set body = 'new' where id = 3", leases["a"]) == 1
    db.execute("select fence.unprotect('public.jan')")
    assert not [key for key in guard_triggers(db) if key[0] == "public.jan"]
    assert armed(db)


def test_detach_write_attach(db: Database) -> None:
    plant(db)
    db.execute("alter table public.t detach partition public.jan")
    db.execute("alter table public.jan disable trigger user")
    db.execute("update public.jan set body = 'behind the guard'", user="outsider")
    db.execute("alter table public.t attach partition public.jan for values from ('2026-01-01') to ('2026-02-01')")
    assert not armed(db)
    protect(db, "public.t", TEMPLATE)
    assert armed(db)
    db.execute("alter table public.t detach partition public.jan")
    protect(db, "public.t", TEMPLATE)
    db.execute("select fence.unprotect('public.jan')")
    db.execute("update public.jan set body = 'unguarded now'", user="outsider")
    db.execute("alter table public.t attach partition public.jan for values from ('2026-01-01') to ('2026-02-01')")
    assert not armed(db)
    with sqlstate("LF004"):
        db.execute("update public.jan set body = 'again'", user="outsider")


def test_a_detached_branch(db: Database) -> None:
    plant(db)
    leases = tenants(db)
    connection = db.connect("app")
    db.execute("alter table public.t detach partition public.feb")
    for table in ("feb", "feb_b"):
        statement = f"update public.{table} set body = 'new' where id = 4"
        answers = [attempt(connection, statement, *[leases[n] for n in names]) for names in ("", "a", "b")]
        assert answers == ["LF004", "LF005", 1]
    strays = (
        "select code, severity, object, remedy from fence.audit() where code in ('guard-partial', 'guard-elsewhere')"
    )
    ((code, severity, table, remedy),) = db.execute(strays, user="monitor")
    assert (code, severity, table) == ("guard-partial", "error", "public.feb")
    # What it is an error for: a row is moved out of a partition under the claim of its new resource alone.
    steal = "merge into public.feb using (values (4)) v (n) on feb.id = v.n when matched then update set tenant = 'a'"
    if db.cluster.version >= 15:
        assert attempt(connection, steal, leases["a"]) == 1
    db.execute(remedy)
    assert db.execute(strays, user="monitor") == []
    if db.cluster.version >= 15:
        assert attempt(connection, steal, leases["a"]) == "LF005"
    protect(db, "public.t", TEMPLATE)  # what decided the partition within the branch decides nothing any more
    assert armed(db)
    assert armed(db, "public.feb")
    if db.cluster.version >= 15:
        merge = "merge into public.feb using (values (4)) v (n) on feb.id = v.n when matched then update set id = 104"
        answers = [attempt(connection, merge, *[leases[n] for n in names]) for names in ("", "a", "b")]
        assert answers == ["LF004", "LF005", 1]


def write_once(db: Database, statement: str) -> tuple[Connection, Lease]:
    """The tree, counting writes, after one under tenant a's lease: the application's connection and that lease."""
    plant(db, p_writes="once")
    lease = tenants(db)["a"]
    connection = db.connect("app")
    present(connection, lease)
    connection.execute(statement)
    connection.commit()
    return connection, lease


def test_what_was_counted_survives_a_detached_partition(db: Database) -> None:
    statement = "update public.t set body = 'new' where id = 3"
    connection, lease = write_once(db, statement)
    assert attempt(connection, statement, lease) == "LF007"
    db.execute("alter table public.t detach partition public.jan")
    protect(db, "public.t", TEMPLATE)
    assert attempt(connection, statement, lease) == "LF007"
    db.execute("alter table public.t detach partition public.rest")
    db.execute("select fence.set_mode('public.t', 'enforce')")
    assert attempt(connection, statement, lease) == "LF007"


def test_exemptions_stay_with_a_tree_that_loses_a_partition(db: Database) -> None:
    plant(db)
    db.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')")
    db.execute("alter table public.t detach partition public.jan")
    db.execute("select fence.set_mode('public.t', 'enforce')")
    assert attempt(db.connect("outsider"), "update public.t set body = 'new' where id = 4") == 1


def counting(db: Database, rule: str) -> None:
    """A table and a partitioned table that count the writes under one resource, each for itself."""
    db.execute("create table public.part (id int primary key)")
    db.execute("create table public.whole (id int primary key) partition by range (id)")
    db.execute("create table public.rest partition of public.whole for values from (1) to (10)")
    for table in ("public.part", "public.whole"):
        protect(db, table, "row", p_writes=rule)


def join(db: Database) -> None:
    db.execute("alter table public.whole attach partition public.part for values from (10) to (20)")
    db.execute("select fence.set_mode('public.whole', 'enforce')")


@pytest.mark.parametrize("newer", ["part", "whole"])
def test_the_newest_of_what_both_have_counted_counts(db: Database, newer: str) -> None:
    older = "whole" if newer == "part" else "part"
    counting(db, "once")
    keys, connection = {"part": 10, "whole": 1}, db.connect("app")
    for table in (older, newer):
        lease = acquire(db, "row")
        present(connection, lease)
        connection.execute(f"insert into public.{table} values ({keys[table]})")
        connection.commit()
        if table == older:
            release(db, lease)
    join(db)
    for table in (older, newer):
        assert attempt(connection, f"delete from public.{table} where id = {keys[table]}", lease) == "LF007"


def test_a_number_that_one_has_counted_is_no_news_to_both(db: Database) -> None:
    counting(db, "sequenced")
    lease, connection = acquire(db, "row"), db.connect("app")

    def write(number: int, statement: str) -> None:
        connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, number))
        connection.execute(statement)
        connection.commit()

    write(5, "insert into public.part values (10)")
    write(3, "insert into public.whole values (1)")
    join(db)
    with sqlstate("LF008"):
        write(4, "delete from public.whole where id = 1")
    connection.rollback()
    write(6, "delete from public.whole where id = 1")


# -- guards that meet -------------------------------------------------------------------------------------------------


def test_a_guarded_table_becomes_a_partition(db: Database) -> None:
    """Both guards hold until the tree is armed; then the tree's is the only one."""
    plant(db)
    db.execute("create table public.new (like public.t including defaults)")
    protect(db, "public.new", "alone:{id}")
    db.execute(f"alter table public.t attach partition public.new {MARCH}")
    db.execute("grant all on public.new to app")
    assert not armed(db)
    connection = db.connect("app")
    a, alone = acquire(db, "tenant:a"), acquire(db, "alone:20")
    insert = "insert into public.{} (id, tenant, day) values (20, 'a', '2026-03-05')"
    assert attempt(connection, insert.format("new")) == "LF004"
    assert attempt(connection, insert.format("new"), a) == "LF005"
    assert attempt(connection, insert.format("new"), alone) == "LF005"
    assert attempt(connection, insert.format("new"), a, alone) == 1
    assert attempt(connection, insert.format("t"), alone) == "LF005"
    protect(db, "public.t", TEMPLATE)
    assert armed(db)
    for table in ("new", "t"):
        assert attempt(connection, insert.format(table), a) == 1
        assert attempt(connection, insert.format(table), alone) == "LF005"
    assert len(db.execute("select id from fence.protected_tables")) == 1
    db.execute("select fence.unprotect('public.t')")
    assert guard_triggers(db) == {}
    assert attempt(connection, insert.format("new")) == 1


def test_a_guarded_tree_cannot_become_a_branch_of_another(db: Database) -> None:
    """Its row triggers have the names of the ones that PostgreSQL would clone: unprotect it first."""
    plant(db)
    db.execute("create table public.branch (like public.t) partition by list (tenant)")
    protect(db, "public.branch", "branch:{id}")
    with sqlstate("42710"):
        db.execute(f"alter table public.t attach partition public.branch {MARCH}")
    assert armed(db)
    assert armed(db, "public.branch")
    db.execute("select fence.unprotect('public.branch')")
    db.execute(f"alter table public.t attach partition public.branch {MARCH}")
    protect(db, "public.t", TEMPLATE)
    assert armed(db)


@pytest.mark.parametrize(
    ("options", "language"), [({}, True), ({"p_token_column": "token"}, False), ({"p_writes": "once"}, False)]
)
def test_a_guard_with_row_triggers_ends_before_its_table_is_attached(
    db: Database, options: dict[str, str], language: bool
) -> None:
    if language:  # one in which a function could stop a statement, by its name
        db.execute("create language later handler plpgsql_call_handler", user=SUPERUSER)
    plant(db)
    db.execute("create table public.new (like public.t including defaults)")
    for table in ("t", "new"):
        db.execute(f"alter table public.{table} add token bigint")
    db.execute("grant all on public.new to app")
    for table, template in (("t", TEMPLATE), ("new", "alone:{id}")):
        protect(db, f"public.{table}", template, **options)
    attach = f"alter table public.t attach partition public.new {MARCH}"
    with sqlstate("42710"):  # PostgreSQL would clone row triggers of the same names
        db.execute(attach)
    assert armed(db)
    assert armed(db, "public.new")
    with db.connect("app_owner") as owner:
        for statement in ("select fence.unprotect('public.new')", attach, "select fence.repair('public.t')"):
            owner.execute(statement)
    assert armed(db)
    insert = "insert into public.new (id, tenant, day) values (20, 'a', '2026-03-05')"
    alone, a = acquire(db, "alone:20"), acquire(db, "tenant:a")
    assert [attempt(db.connect("app"), insert, lease) for lease in (alone, a)] == ["LF005", 1]


@pytest.mark.parametrize("what", ["table", "tree"])
def test_a_guarded_table_under_an_unprotected_root_is_reported_until_the_root_is_protected(
    db: Database, what: str
) -> None:
    """A documented limit: a statement on the new root fires none of the statement triggers below it."""
    plant(db)
    table = "t"
    if what == "table":
        table = "alone"
        db.execute("create table public.alone (like public.t including defaults)")
        protect(db, "public.alone", TEMPLATE)
    db.execute("create table public.top (like public.t including defaults) partition by list (((id >= 0)))")
    db.execute(f"alter table public.top attach partition public.{table} for values in (true)")
    db.execute("grant all on public.top, public." + table + " to app")
    found = db.execute("select code, severity from fence.audit() where object = %s", (f"public.{table}",))
    assert ("guard-bypassed", "error") in found
    connection = db.connect("app")
    insert = "insert into public.{} (id, tenant, day) values (20, 'a', '2028-03-05')"
    assert attempt(connection, insert.format(table)) == "LF004"  # named itself it is guarded as before
    assert attempt(connection, insert.format("top")) == 1  # the limit
    protect(db, "public.top", TEMPLATE)
    assert armed(db, "public.top")
    assert "public." + table not in [
        name for (name,) in db.execute("select protected_table::text from fence.protected_tables")
    ]
    for name in (table, "top"):
        assert attempt(connection, insert.format(name)) == "LF004"
        assert attempt(connection, insert.format(name), acquire(db, f"x:{name}")) == "LF005"
    db.execute("select fence.unprotect('public.top')")
    assert not {where for where, _ in guard_triggers(db)} & {f"public.{table}", "public.top"}


# -- triggers switched off and on -------------------------------------------------------------------------------------

HOLES = {
    "every trigger of the root": (
        "alter table public.t disable trigger all",
        "alter table public.t enable trigger all",
    ),
    "every trigger of a leaf": (
        "alter table public.jan disable trigger all",
        "alter table public.jan enable trigger all",
    ),
    "every trigger of a middle table": (
        "alter table public.feb disable trigger user",
        "alter table public.feb enable trigger user",
    ),
    "the guard of rows that leave": ('alter table public.jan disable trigger "~~0_fence_leave"', ""),
    "the guard of rows that arrive": ('alter table public.jan disable trigger "0_fence_arrive"', ""),
    "the guard for later leaves": ('alter table only public.feb disable trigger "0_fence_row1"', ""),
    "the middle's own statement guard": ('drop trigger "0_fence_update" on public.feb', ""),
    "not always": ('alter table public.jan enable trigger "~~0_fence_leave"', ""),
    "a slow leaf": ('alter table public.jan enable always trigger "0_fence_row"', ""),
}


@pytest.mark.parametrize("mend", ["protect", "set_mode", "repair"])
@pytest.mark.parametrize("what", list(HOLES))
def test_a_hole_is_reported_and_mended(db: Database, what: str, mend: str) -> None:
    plant(db)
    before = guard_triggers(db)
    for statement in filter(None, HOLES[what]):
        db.execute(statement)
        assert not armed(db)
    if mend == "protect":
        protect(db, "public.t", TEMPLATE)
    elif mend == "set_mode":
        db.execute("select fence.set_mode('public.t', 'enforce')")
    else:
        assert db.execute("select fence.repair('public.t')") == [(1,)]
    assert armed(db)
    assert guard_triggers(db) == before


def test_a_trigger_that_may_change_what_arrives_is_reported_until_repaired(db: Database) -> None:
    """From then on every row that is inserted is looked at, but where any row may be inserted."""
    plant(db)
    body = "begin new.tenant := lower(new.tenant); return new; end"
    db.execute(f"create function public.norm() returns trigger language plpgsql as $${body}$$")
    lease = tenants(db)["b"]
    connection = db.connect("app")
    insert = "insert into public.t (id, tenant, day) select n, 'b', '2026-01-01' from generate_series(1, 5) n"

    def arrivals(lease: Lease = lease) -> int | None:
        present(connection, lease)
        calls = trigger_calls(connection, insert).get("0_fence_arrive")
        connection.rollback()
        return calls

    assert arrivals() is None
    db.execute("create trigger norm before insert on public.jan for each row execute function public.norm()")
    assert not armed(db)
    db.execute("select fence.repair('public.t')")
    assert armed(db)
    assert arrivals() == 5
    protect(db, "public.t", TEMPLATE, p_inserts="allow")
    assert arrivals() is None
    protect(db, "public.t", "nightly", p_inserts="check")
    assert arrivals(acquire(db, "nightly")) is None
    protect(db, "public.t", TEMPLATE, p_inserts="check")
    db.execute("drop trigger norm on public.jan")
    assert not armed(db)
    db.execute("select fence.repair('public.t')")
    assert armed(db)
    assert arrivals() is None


def detach_halfway(db: Database, partition: str) -> None:
    """DETACH CONCURRENTLY that is cancelled while it waits for a reader: neither in the tree nor out of it."""
    reader, detaching = db.connect("app"), db.connect("app_owner", autocommit=True)
    reader.execute("select from public.halves")
    waiting = db.start_blocked(
        detaching, f"alter table public.halves detach partition {partition} concurrently", by=reader
    )
    detaching.cancel()
    with sqlstate("57014"):
        waiting.result(10)
    reader.rollback()


@pytest.mark.parametrize(
    ("guarded", "call"),
    [
        (False, "protect('public.halves', 'half:{id}')"),
        (True, "protect('public.halves', 'other:{id}')"),
        (True, "set_mode('public.halves', 'observe')"),
    ],
)
def test_a_partition_that_is_halfway_detached_has_to_be_finished_first(db: Database, guarded: bool, call: str) -> None:
    db.execute("create table public.halves (id int primary key) partition by range (id)")
    db.execute("create table public.half_1 partition of public.halves for values from (0) to (10)")
    db.execute("create table public.half_2 partition of public.halves for values from (10) to (20)")
    db.execute("grant select on public.halves to app")
    if guarded:
        db.execute("select fence.protect('public.halves', 'half:{id}')")
    detach_halfway(db, "public.half_1")
    with sqlstate("LF010") as refused:
        db.execute(f"select fence.{call}")
    check_refusal(refused.diag, table="halves")
    assert refused.diag.message_hint == "alter table public.halves detach partition public.half_1 finalize;"
    owner = db.connect("app_owner", autocommit=True)
    owner.execute(refused.diag.message_hint)
    db.execute(f"select fence.{call}")


# -- a guard that two tables have --------------------------------------------------------------------------------------


def test_a_table_is_not_unprotected_while_a_former_part_has_its_guard(db: Database) -> None:
    """Its covering resource would be forgotten: the holders of that and of a row could both write the detached part."""
    plant(db, p_covering="all")
    db.execute("alter table public.t detach partition public.jan")
    with sqlstate("LF010") as refused:
        db.execute("select fence.unprotect('public.t')")
    for mend in ("select", refused.diag.message_hint.partition("first: ")[2], "select fence.unprotect('public.t')"):
        db.execute(mend)
        covering = acquire(db, "all")
        assert ask(db, "tenant:a").reason == "held"
        assert attempt(db.connect("app"), "update public.jan set body = 'new'", covering) == 2
        release(db, covering)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_former_part_counts_on_when_it_gets_a_guard_of_its_own(db: Database, renamed: bool) -> None:
    statement = "update public.jan set body = 'new' where id = 1"
    connection, lease = write_once(db, statement)
    db.execute("alter table public.t detach partition public.jan")
    if renamed:
        db.execute("alter table public.t rename to former")
    assert attempt(connection, statement, lease) == "LF007"
    protect(db, "public.jan", TEMPLATE, p_writes="once")
    assert attempt(connection, statement, lease) == "LF007"


def test_a_guard_that_two_have_stays_with_the_one_that_is_renamed(db: Database) -> None:
    plant(db, p_covering="all")
    db.execute("alter table public.t detach partition public.jan")
    db.execute("alter table public.t rename to former")
    found = db.execute("select code, object, remedy from fence.audit()")
    assert "guard-orphaned" not in [code for code, _, _ in found]
    assert ("table-renamed", "public.former") in [(code, name) for code, name, _ in found]
    for code, _, remedy in found:
        if code in ("table-renamed", "guard-elsewhere", "guard-partial"):
            db.execute(remedy)
    db.execute("select fence.set_mode('public.former', 'enforce')")
    covering = acquire(db, "all")
    assert ask(db, "tenant:a").reason == "held"
    for table in ("former", "jan"):
        assert attempt(db.connect("app"), f"update public.{table} set body = 'new' where tenant = 'b'", covering) > 0
        assert attempt(db.connect("app"), f"update public.{table} set body = 'new' where tenant = 'b'") == "LF004"


def test_a_guard_that_two_have_is_changed_by_one_of_them(db: Database) -> None:
    plant(db)
    set_mode = "select fence.set_mode('public.{}', 'enforce')"
    db.execute("alter table public.t detach partition public.jan")
    with sqlstate("LF010"):
        db.execute(set_mode.format("jan"))
    db.execute("alter table public.t rename to former")
    with sqlstate("LF010"):
        db.execute(set_mode.format("jan"))
    db.execute(set_mode.format("former"))
    for table in ("jan", "former"):
        assert attempt(db.connect("outsider"), f"update public.{table} set body = 'new'") == "LF004"


def test_nobody_is_exempt_from_a_guard_that_two_have(db: Database) -> None:
    """It would be from the former part, too."""
    plant(db)
    exempt = "select fence.exempt('public.{}', 'outsider', now() + interval '1 h', 'x')"
    db.execute("alter table public.t detach partition public.jan")
    with sqlstate("LF010") as refused:
        db.execute(exempt.format("t"))
    with sqlstate("LF010"):
        db.execute(exempt.format("jan"))
    db.execute(refused.diag.message_hint.partition("first: ")[2])
    db.execute(exempt.format("t"))
    outsider = db.connect("outsider")
    assert attempt(outsider, "update public.t set body = 'new' where id = 4") == 1
    assert attempt(outsider, "update public.jan set body = 'new'") == "LF004"


def test_a_renamed_tree_and_its_former_part_are_exempt_each_for_itself(db: Database) -> None:
    """The names are changed about: the guard goes with the name, and would take the exemption along."""
    plant(db)
    for change in ("t detach partition public.jan", "t rename to former", "jan rename to t"):
        db.execute(f"alter table public.{change}")
    exempt = "select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')"
    with sqlstate("LF010") as refused:
        db.execute(exempt)
    db.execute(refused.diag.message_hint.partition("first: ")[2])
    db.execute(exempt)
    outsider = db.connect("outsider")
    assert attempt(outsider, "update public.t set body = 'new'") == 2
    assert attempt(outsider, "update public.former set body = 'new' where id = 4") == "LF004"


def test_an_exemption_does_not_go_over_to_a_former_part(db: Database) -> None:
    """The older of the two has the guard when the tree has another name."""
    db.execute("create table public.part (id int, tenant text, body text)")
    db.execute("create table public.whole (id int, tenant text, body text) partition by list (tenant)")
    db.execute("alter table public.whole attach partition public.part for values in ('a')")
    db.execute("insert into public.whole values (1, 'a', 'old')")
    protect(db, "public.whole", TEMPLATE)
    db.execute("select fence.exempt('public.whole', 'outsider', now() + interval '1 h', 'x')")
    db.execute("alter table public.whole detach partition public.part")
    outsider = db.connect("outsider")
    statements = ("update public.part set body = 'new'", "delete from public.{}")
    assert [attempt(outsider, statement.format("whole")) for statement in statements] == ["LF004", 0]
    db.execute("alter table public.whole rename to former")
    assert [attempt(outsider, statement.format("former")) for statement in statements] == ["LF004", "LF004"]


def test_a_former_part_in_a_schema_that_pyfence_may_not_use_is_refused_as_ever(db: Database) -> None:
    """Who owns schema fence needs no right on the tables' schemas."""
    db.execute("create schema apart authorization app_owner", user=SUPERUSER)
    db.execute("grant usage on schema apart to app", user=SUPERUSER)
    db.execute("create table apart.part (id int, tenant text)")
    db.execute("create table apart.whole (id int, tenant text) partition by list (tenant)")
    db.execute("alter table apart.whole attach partition apart.part for values in ('a')")
    db.execute("grant all on all tables in schema apart to app")
    protect(db, "apart.whole", TEMPLATE)
    db.execute("alter table apart.whole detach partition apart.part")
    writer = db.connect("app")
    for name in ("whole", "other"):
        for table in (name, "part"):
            assert attempt(writer, f"delete from apart.{table}") == "LF004"
        db.execute("select fence.set_mode(%s, 'enforce')", (f"apart.{name}",))
        if name == "whole":
            db.execute("alter table apart.whole rename to other")
