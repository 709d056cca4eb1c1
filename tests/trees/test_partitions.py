"""A partitioned table, whatever the level that a statement names."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, by_hand, check_refusal, present, protect, supersede
from harness import Database, sqlstate
from trees.forest import (
    PARTS,
    TEMPLATE,
    armed,
    attempt,
    copy_in,
    guard_triggers,
    plant,
    tenants,
    trigger_calls,
    whereabouts,
)

#: Row 4 and the new row 10 through each table above them; both are tenant b's, in February.
LEVELS = ("t", "feb", "feb_b")
WRITES = {
    "insert": "insert into public.{} (id, tenant, day) values (10, 'b', '2026-02-05')",
    "insert returning": "insert into public.{} (id, tenant, day) values (10, 'b', '2026-02-05') returning id",
    "insert on conflict": "insert into public.{} (id, tenant, day) values (10, 'b', '2026-02-05') "
    "on conflict do nothing",
    "update": "update public.{} set body = 'new' where id = 4",
    "update of nothing": "update public.{} set tenant = tenant, day = day where id = 4",
    "delete": "delete from public.{} where id = 4",
    "merge update": "merge into public.{} t using (values (4)) v (id) on t.id = v.id "
    "when matched then update set body = 'new'",
    "merge delete": "merge into public.{} t using (values (4)) v (id) on t.id = v.id when matched then delete",
    "merge insert": "merge into public.{} t using (values (10)) v (id) on t.id = v.id "
    "when not matched then insert (id, tenant, day) values (10, 'b', '2026-02-05')",
    "cte": "with w as (update public.{} set body = 'new' where id = 4 returning id) select * from w",
}


@pytest.mark.parametrize("template", [TEMPLATE, "nightly"])
def test_every_write_at_every_level(db: Database, template: str, isolation: psycopg.IsolationLevel) -> None:
    plant(db, template)
    before = whereabouts(db)
    resource = "tenant:b" if template == TEMPLATE else "nightly"
    stale = acquire(db, resource)
    mine, other = supersede(db, stale), acquire(db, "tenant:a")
    connection = db.connect("app", isolation=isolation)
    (leaf,) = (place for place, id_, *_ in before if id_ == 4)
    for level in (*LEVELS, leaf):
        for kind, statement in WRITES.items():
            if kind.startswith("merge") and db.cluster.version < 15:
                continue
            text = statement.format(level)
            if level == leaf:
                text = text.replace("(10,", "(4,") if "insert" in kind and "merge" not in kind else text
                if kind == "merge insert":
                    continue  # which leaf the hash sends row 10 to is its own business
            answers = [attempt(connection, text, *claims) for claims in ([], [other], [mine])]
            assert answers == ["LF004", "LF005", 1], (level, kind)
            assert attempt(connection, text, stale) == "LF001", (level, kind)
        row = (4, "b", "2026-02-05")
        assert [copy_in(connection, level, row, *claims) for claims in ([], [other], [mine])] == ["LF004", "LF005", 1]
        truncate = f"truncate public.{level}"
        wanted = ["LF004", "LF005", "LF005" if template == TEMPLATE else -1]
        assert [attempt(connection, truncate, *claims) for claims in ([], [other], [mine])] == wanted
    assert whereabouts(db) == before


def test_a_refusal_names_the_table_that_was_written_and_its_hint_works(db: Database) -> None:
    plant(db)
    connection = db.connect("app", autocommit=True)
    for level in PARTS:
        with sqlstate("LF004") as refused:
            connection.execute(f"update public.{level} set body = 'new'")
        check_refusal(refused.diag, table=level)
    ((resource,),) = db.execute("select fence.resource_name('tenant:{tenant}', '{\"tenant\": \"b\"}')")
    assert resource == "tenant:b"


def test_a_bulk_statement_needs_every_resource_it_touches(db: Database, isolation: psycopg.IsolationLevel) -> None:
    plant(db)
    before, leases = whereabouts(db), tenants(db)
    connection = db.connect("app", isolation=isolation)
    for statement in ("update public.t set body = 'new'", "delete from public.t"):
        for missing in "abc":
            rest = [lease for name, lease in leases.items() if name != missing]
            assert attempt(connection, statement, *rest) == "LF005"
        assert attempt(connection, statement, *leases.values()) == 9
    assert attempt(connection, "update public.feb set body = 'new'", leases["a"], leases["b"]) == "LF005"
    assert attempt(connection, "update public.feb_b set body = 'new'", leases["b"]) == 3
    assert attempt(connection, "update only public.t set body = 'new'", leases["c"]) == 0
    assert whereabouts(db) == before


# -- moves between partitions -----------------------------------------------------------------------------------------

#: A change of one row; the tenants whose claims it needs.
MOVES = {
    "out of January": (1, "day = '2026-02-05'", "a"),
    "into a hash partition": (2, "day = '2026-02-05'", "b"),
    "into the default partition": (1, "day = '2028-01-01'", "a"),
    "out of the default partition": (6, "day = '2026-01-01'", "a"),
    "out of a leaf two levels down": (4, "day = '2026-01-09'", "b"),
    "two levels down": (7, "day = '2026-02-09'", "b"),
    "between hash partitions": (4, "id = 100 + id", "b"),
    "to another tenant's leaf": (3, "tenant = 'b'", "ab"),
    "from another tenant's leaf": (4, "tenant = 'a'", "ab"),
    "to the default of a middle table": (3, "tenant = 'c'", "ac"),
    "to another tenant in the same leaf": (1, "tenant = 'b'", "ab"),
    "to another tenant and month": (1, "tenant = 'b', day = '2026-02-05'", "ab"),
    "from another tenant and month": (4, "tenant = 'a', day = '2026-01-05'", "ab"),
}
VERBS = {
    "update": "update public.{2} set {0} where id = {1}",
    "update from": "update public.{2} set {0} from (values ({1})) v (n) where id = v.n",
    "merge": "merge into public.{2} t using (values ({1})) v (n) on t.id = v.n when matched then update set {0}",
    "merge of all kinds": "merge into public.{2} t using (values ({1}), (99)) v (n) on t.id = v.n "
    "when matched and t.body = '?' then delete when matched then update set {0} "
    "when not matched and v.n = 98 then insert (id, tenant, day) values (99, 'c', '2026-01-01')",
}


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_move_needs_the_claims_of_both_ends_and_of_nobody_else(
    db: Database, verb: str, isolation: psycopg.IsolationLevel
) -> None:
    if verb.startswith("merge") and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    plant(db)
    before, leases = whereabouts(db), tenants(db)
    connection = db.connect("app", isolation=isolation)
    for name, (row, change, needed) in MOVES.items():
        through = ["t"]
        if name in ("to another tenant's leaf", "from another tenant's leaf", "to the default of a middle table"):
            through.append("feb")
        for table in through:
            statement = VERBS[verb].format(change, row, table)
            assert attempt(connection, statement) == "LF004", name
            for missing in needed:
                claims = [lease for tenant, lease in leases.items() if tenant != missing]
                assert attempt(connection, statement, *claims) == "LF005", (name, missing)
                assert whereabouts(db) == before
            assert attempt(connection, statement, *[leases[tenant] for tenant in needed]) == 1, name
    present(connection, leases["a"], leases["b"])
    connection.execute(VERBS[verb].format("tenant = 'b', day = '2026-02-05'", 1, "t"))
    connection.commit()
    assert ("1", "b") in [(str(id_), tenant) for _, id_, tenant, *_ in whereabouts(db)]


KEYS = {
    "an expression": ("n int", "range ((n / 10))", "0) to (1", "1) to (99", "1", "15"),
    "a text expression": ("n text", "list ((lower(n)))", "'x'", "'y'", "'X'", "'Y'"),
    "equal numbers": ("n numeric", "list ((scale(n)))", "1", "2", "1.0", "1.00"),
    "json": ("n json", "list (((n ->> 'k')))", "'x'", "'y'", """'{"k": "x"}'""", """'{"k": "y"}'"""),
    "a boolean": ("n boolean", "list (n)", "true", "false", "true", "false"),
    "a padded text": ("n char(3)", "list (n)", "'x'", "'y'", "'x'", "'y'"),
    "a float": ("n float8", "range (n)", "0) to (1", "1) to (99", "0.5", "15"),
}


@pytest.mark.parametrize("kind", list(KEYS))
def test_whatever_decides_the_partition(db: Database, kind: str) -> None:
    """Not the resource: a statement that names only this column must not carry off a row of somebody else."""
    column, key, first, second, old, new = KEYS[kind]
    values = "from" if "range" in key else "in"
    db.execute(f"create table public.k (id int, tenant text, {column}) partition by {key}")
    db.execute(f"create table public.k1 partition of public.k for values {values} ({first})")
    db.execute(f"create table public.k2 partition of public.k for values {values} ({second})")
    db.execute(f"insert into public.k values (1, 'a', {old})")
    protect(db, "public.k", TEMPLATE)
    assert armed(db, "public.k")
    leases = tenants(db)
    connection = db.connect("app")
    before = whereabouts(db, "public.k")
    statements = [f"update public.k set n = {new} where id = 1"]
    if db.cluster.version >= 15:
        merge = "merge into public.k using (values (1)) v (x) on id = v.x when matched then update set n = {}"
        statements.append(merge.format(new))
    for statement in statements:
        assert attempt(connection, statement) == "LF004"
        assert attempt(connection, statement, leases["b"]) == "LF005"
        assert attempt(connection, statement, leases["a"]) == 1
        assert whereabouts(db, "public.k") == before


def rival(db: Database, name: str, events: str, table: str, body: str) -> None:
    ((count,),) = db.execute("select count(*) from pg_proc")
    function = f"public.rival_{count}"
    body = f"begin {body} return new; end"
    db.execute(
        f"create function {function}() returns trigger language plpgsql set search_path = pg_catalog as $${body}$$"
    )
    db.execute(f'create trigger "{name}" {events} on public.{table} for each row execute function {function}()')


RIVALS = {
    "the tenant, on the way in": ("rest", "before insert", "new.tenant := 'b';", "day = '2028-01-01'", "ab"),
    "the tenant, on the way out": ("jan", "before update", "new.tenant := 'b';", "day = '2028-01-01'", "ab"),
    "the tenant, at the root": ("t", "before update", "new.tenant := 'b';", "body = 'new'", "ab"),
    "the partition": ("t", "before update", "new.day := '2028-01-01';", "body = 'new'", "a"),
    "both": ("t", "before update", "new.day := '2028-01-01'; new.tenant := 'c';", "body = 'new'", "ac"),
    "back to what it was": (
        "jan",
        "before update",
        "new.tenant := old.tenant;",
        "tenant = 'b', day = '2028-01-01'",
        "a",
    ),
    "nothing in the end": ("rest", "before insert", "new.tenant := 'a';", "tenant = 'b', day = '2028-01-01'", "ab"),
}


@pytest.mark.parametrize("what", list(RIVALS))
@pytest.mark.parametrize("name", ["0_a", "0_fencf", "zzz", "~1", "~0_zzz"])
def test_a_rival_trigger_that_changes(db: Database, what: str, name: str) -> None:
    """Other triggers, before the guard's and behind it, on the partition that a row leaves or comes to.

    One that may change what arrives asks for another guard; the one that is there looks at moved rows, too.
    """
    table, events, body, change, needed = RIVALS[what]
    plant(db)
    rival(db, name, events, table, body)
    assert armed(db) == ("insert" not in events)
    before, leases = whereabouts(db), tenants(db)
    connection = db.connect("app")
    for verb in ("update", "merge", "repair", "update", "merge")[: 5 if "insert" in events else 2]:
        if verb == "merge" and db.cluster.version < 15:
            continue
        if verb == "repair":
            db.execute("select fence.repair('public.t')")
            assert armed(db)
            continue
        statement = VERBS[verb].format(change, 1, "t")
        for missing in needed:
            claims = [lease for tenant, lease in leases.items() if tenant != missing]
            assert attempt(connection, statement, *claims) == "LF005", (verb, missing)
        assert attempt(connection, statement, *leases.values()) == 1
        assert whereabouts(db) == before


def test_a_trigger_that_changes_rows_behind_the_guard_is_refused_and_reported(db: Database) -> None:
    plant(db)
    for name in ("~~~", "über", "~~1"):
        rival(db, name, "before update", "jan", "new.tenant := 'b';")
        assert not armed(db)
        with sqlstate("LF010") as refused:
            protect(db, "public.t", TEMPLATE)
        assert name in refused.diag.message_hint
        db.execute(f'alter trigger "{name}" on public.jan rename to early')
        assert armed(db)
        protect(db, "public.t", TEMPLATE)
        db.execute("drop trigger early on public.jan")


def test_triggers_that_change_no_row_behind_the_guard_may_have_any_name(db: Database) -> None:
    plant(db)
    db.execute("select fence.unprotect('public.t')")
    for name, when in (
        ("~~~after", "after update"),
        ("~~~delete", "before delete"),
        ("early", "before insert or update"),
    ):
        rival(db, name, when, "t", "")
    protect(db, "public.t", TEMPLATE)
    assert armed(db)


def test_a_guard_is_made_and_taken_away_from_the_top_down(db: Database) -> None:
    """In the order in which PostgreSQL itself locks a tree, not in that in which its tables were made."""
    for table, partitioned in (("deep", False), ("mid", True), ("shallow", False), ("root", True)):
        db.execute(f"create table public.{table} (id int primary key)" + " partition by range (id)" * partitioned)
    for leaf in ("deep", "shallow"):
        protect(db, f"public.{leaf}", leaf + ":{id}")
    for parent, part, start in (("mid", "deep", 1), ("root", "shallow", 10), ("root", "mid", 1)):
        bounds = f"from ({start}) to ({start + 9})"
        db.execute(f"alter table public.{parent} attach partition public.{part} for values {bounds}")

    owner = db.connect("app_owner")

    def tables(function: str, *arguments: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for (statement,) in owner.execute(by_hand(db, function, "'public.root'", *arguments)).fetchall():
            verb, table = re.fullmatch(r"(drop|create|alter).* public\.(\w+)\b.*", statement, re.S).groups()  # type: ignore[union-attr]
            if "disable" not in statement and table not in found.setdefault(verb, []):
                found[verb].append(table)
        return found

    defined = tables("_define_guard", "'r:{id}'")
    down = ["root", "mid", "shallow", "deep"]
    assert defined == {"drop": ["shallow", "deep"], "create": down, "alter": down}
    owner.rollback()
    protect(db, "public.root", "r:{id}")
    assert tables("_undefine_guard") == {"drop": down}


def test_names_of_the_guard_are_its_own_on_every_level(db: Database) -> None:
    plant(db)
    db.execute("select fence.unprotect('public.t')")
    rival(db, "0_fence_update", "before update", "feb_b0", "")
    with sqlstate("LF010") as refused:
        protect(db, "public.t", TEMPLATE)
    assert "feb_b0" in refused.diag.message_primary
    assert guard_triggers(db) == {}


# -- counted writes and stamped tokens --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["update", "merge"])
def test_a_move_is_a_write_that_counts(db: Database, verb: str, isolation: psycopg.IsolationLevel) -> None:
    if verb == "merge" and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    plant(db, p_writes="once")
    lease = tenants(db)["a"]
    connection = db.connect("app", isolation=isolation)
    present(connection, lease)
    for day in ("2026-02-05", "2026-01-06"):  # within one transaction: one write
        assert connection.execute(VERBS[verb].format(f"day = '{day}'", 1, "t")).rowcount == 1
    connection.commit()
    after = whereabouts(db)
    for day in ("2026-02-05", "2028-01-01", "2026-01-07"):
        assert attempt(connection, VERBS[verb].format(f"day = '{day}'", 1, "t"), lease) == "LF007"
    assert whereabouts(db) == after
    lease = supersede(db, lease)
    assert attempt(connection, VERBS[verb].format("day = '2026-02-05'", 1, "t"), lease) == 1


@pytest.mark.parametrize("verb", ["update", "merge"])
def test_a_sequence_counts_across_partitions(db: Database, verb: str) -> None:
    if verb == "merge" and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    plant(db, p_writes="sequenced")
    lease = tenants(db)["a"]
    connection = db.connect("app")

    def write(sequence: int | None, day: str) -> str | int:
        connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, sequence))
        try:
            return connection.execute(VERBS[verb].format(f"day = '{day}'", 1, "t")).rowcount
        except psycopg.Error as error:
            connection.rollback()
            return str(error.sqlstate)
        finally:
            connection.commit()

    assert [
        write(*case) for case in ((None, "2026-02-05"), (5, "2026-02-05"), (5, "2026-01-05"), (4, "2026-01-05"))
    ] == [
        "LF008",
        1,
        "LF007",
        "LF008",
    ]
    assert write(6, "2026-01-05") == 1


def test_the_token_is_stamped_on_every_level_and_across_them(db: Database) -> None:
    plant(db)
    db.execute("alter table public.t add fence_token bigint")
    protect(db, "public.t", TEMPLATE, p_token_column="fence_token")
    assert armed(db)
    connection = db.connect("app")
    lease = tenants(db)["b"]
    statements = ["insert into public.{} (id, tenant, day) values (20, 'b', '2026-02-05') returning fence_token"]
    statements += ["update public.{} set body = 'new' where id = 4 returning fence_token"]
    statements += [
        "update public.{} set id = 4 + n, fence_token = 1 from (values (9)) v (n) where id = 4 returning fence_token"
    ]
    for statement in statements:
        for level in LEVELS:
            present(connection, lease)
            assert connection.execute(statement.format(level)).fetchall() == [(lease.token,)]
            connection.rollback()
    if db.cluster.version >= 15:
        present(connection, lease)
        connection.execute(VERBS["merge"].format("day = '2026-01-09'", 4, "t"))
        query = "select tableoid::regclass::text, fence_token from public.t where id = 4"
        assert connection.execute(query).fetchall() == [("public.jan", lease.token)]
        connection.rollback()
    db.execute("create table public.mar partition of public.t for values from ('2026-03-01') to ('2026-04-01')")
    db.execute("grant all on public.mar to app")
    present(connection, lease)
    statement = "insert into public.{} (id, tenant, day) values (20, 'b', '2026-03-05') returning fence_token"
    for level in ("t", "mar"):
        assert connection.execute(statement.format(level)).fetchall() == [(lease.token,)]


def row_checks(states: dict[tuple[str, str], str], part: str) -> list[str]:
    """The triggers that check every single row of a table, as far as they are on."""
    return [
        name for (table, name), state in states.items() if table == f"public.{part}" and state != "D" and "_row" in name
    ]


# -- what protect and unprotect leave ---------------------------------------------------------------------------------

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("nightly", {}),
    (TEMPLATE, {}),
    ("row:{id}", {"p_expiry": "until_superseded"}),
    ("{tenant}:{id}", {"p_writes": "once"}),
    ("nightly", {"p_writes": "many"}),
    (TEMPLATE, {"p_expiry": "reject"}),
]


def test_a_guard_may_change_and_covers_every_level_each_time(db: Database) -> None:
    plant(db)
    connection = db.connect("app")
    lease = acquire(db, "another")
    for template, options in CHANGES:
        protect(db, "public.t", template, **options)
        assert armed(db), template
        states = guard_triggers(db)
        assert {table.removeprefix("public.") for table, _ in states} == set(PARTS)
        off = {key for key, state in states.items() if state != "A"}
        assert all(re.fullmatch(r"0_fence_row(_update)?[12]?", name) for _, name in off)
        for part in {*PARTS} - {"t", "feb", "feb_b"}:
            assert not row_checks(states, part), "a known leaf is checked set-wise"
        for level in PARTS:
            insert = f"insert into public.{level} (id, tenant, day) values (4, 'b', '2026-02-05')"
            assert attempt(connection, insert) == "LF004", (template, level)
            assert attempt(connection, insert, lease) in ("LF005", "23514"), (template, level)
    db.execute("select fence.unprotect('public.t')")
    assert guard_triggers(db) == {}
    assert db.execute("select from pg_proc where proname ~ '^_guard_[0-9]+$'", user="postgres") == []
    assert db.execute("select from fence.protected_tables") == []
    for level in PARTS:
        assert attempt(connection, f"update public.{level} set body = 'new'") != "LF004"


@pytest.mark.parametrize("table", ["jan", "feb", "feb_b", "feb_b1"])
def test_a_part_of_a_tree_is_neither_protected_nor_unprotected_alone(db: Database, table: str) -> None:
    plant(db)
    before = guard_triggers(db)
    for call in (
        "select fence.unprotect(%s)",
        "select fence.protect(%s, 'alone')",
        "select fence.set_mode(%s, 'enforce')",
    ):
        with sqlstate("LF010") as refused:
            db.execute(call, (f"public.{table}",))
        assert "public.t" in refused.diag.message_detail + refused.diag.message_hint
    assert guard_triggers(db) == before
    assert armed(db)
    assert attempt(db.connect("app"), f"update public.{table} set body = 'new'") == "LF004"


def test_the_owner_of_a_leaf_alone_changes_nothing_of_the_guard(db: Database) -> None:
    plant(db)
    db.execute("alter table public.jan owner to outsider", user="postgres")
    db.execute("grant execute on function fence.unprotect(regclass) to outsider", user="postgres")
    grants = db.execute("select fence._role_grants('outsider', 'admin')", user="fence_owner")
    for (statement,) in grants:
        db.execute(statement, user="fence_owner")
    for call in ("select fence.unprotect('public.jan')", "select fence.protect('public.jan', 'mine')"):
        with sqlstate("LF010"):
            db.execute(call, user="outsider")
    for call in ("select fence.unprotect('public.t')", "select fence.protect('public.t', 'mine')"):
        with sqlstate("42501"):
            db.execute(call, user="outsider")
    assert armed(db)
    with sqlstate("LF004"):
        db.execute("update public.jan set body = 'new'", user="outsider")


def test_who_does_not_own_every_leaf_protects_nothing(db: Database) -> None:
    plant(db)
    db.execute("select fence.unprotect('public.t')")
    db.execute("alter table public.feb_b0 owner to outsider", user="postgres")
    with sqlstate("42501"):
        protect(db, "public.t", TEMPLATE)
    assert guard_triggers(db) == {}
    assert db.execute("select from fence.protected_tables") == []
    db.execute("alter table public.feb_b0 owner to app_owner", user="postgres")
    protect(db, "public.t", TEMPLATE)
    assert armed(db)


def test_a_foreign_partition_is_refused_and_one_attached_later_reported(db: Database) -> None:
    db.execute("create foreign data wrapper w", user="postgres")
    db.execute("create server s foreign data wrapper w", user="postgres")
    db.execute("grant usage on foreign server s to app_owner", user="postgres")
    plant(db)
    db.execute("create foreign table public.f (id int, tenant text, day date, body text default 'old') server s")
    attach = "alter table public.t attach partition public.f for values from ('2030-01-01') to ('2031-01-01')"
    try:
        db.execute(attach)
    except psycopg.errors.WrongObjectType:
        pass  # row triggers with what foreign tables cannot have: PostgreSQL's own refusal will do
    else:
        assert not armed(db)
        with sqlstate("LF010") as refused:
            protect(db, "public.t", TEMPLATE)
        assert "foreign" in refused.diag.message_detail
    db.execute("select fence.unprotect('public.t')")
    assert guard_triggers(db) == {}


# -- speed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [TEMPLATE, "nightly"])
def test_rows_of_known_leaves_cost_no_calls(db: Database, template: str) -> None:
    plant(db, template)
    leases = [*tenants(db).values(), acquire(db, "nightly")]
    rows = "select n, 'b', date '2026-01-01' + n % 60 from generate_series(1, 500) n"
    insert = f"insert into public.t (id, tenant, day) {rows}"
    connection = db.connect("app")
    present(connection, *leases)
    for statement in (
        insert,
        "update public.t set body = 'new'",
        "update public.jan set body = 'new'",
        "delete from public.t",
    ):
        calls = trigger_calls(connection, statement)
        assert calls, statement
        assert {name: count for name, count in calls.items() if count > 1} == {}, statement
    connection.rollback()
    states = guard_triggers(db)
    assert {part for part in PARTS if row_checks(states, part)} == {"t", "feb", "feb_b"}


def test_an_insert_after_a_move_is_still_checked_in_the_same_transaction(db: Database) -> None:
    """Rows are looked at one by one then; the transaction after it starts afresh."""
    plant(db)
    leases = tenants(db)
    connection = db.connect("app")
    present(connection, leases["b"])
    connection.execute("update public.t set day = '2028-01-01' where id = 2")
    insert = "insert into public.t (id, tenant, day) select n, 'b', '2026-01-01' from generate_series(1, 5) n"
    assert trigger_calls(connection, insert).get("0_fence_arrive") == 5
    connection.rollback()
    present(connection, leases["b"])
    assert "0_fence_arrive" not in trigger_calls(connection, insert)
    connection.rollback()
    present(connection, leases["b"])
    connection.execute("savepoint s")
    connection.execute("update public.t set day = '2028-01-01' where id = 2")
    connection.execute("rollback to s")
    assert "0_fence_arrive" not in trigger_calls(connection, insert)


def test_a_session_that_claims_to_be_moving_gains_nothing(db: Database) -> None:
    plant(db)
    leases = tenants(db)
    connection = db.connect("app", options="-c fence.moving=on")
    assert attempt(connection, WRITES["insert"].format("t"), leases["a"]) == "LF005"
    assert attempt(connection, WRITES["insert"].format("t"), leases["b"]) == 1
    assert attempt(connection, WRITES["insert"].format("t")) == "LF004"


# -- cascades ---------------------------------------------------------------------------------------------------------

CASCADES = {
    "on delete cascade": "delete from public.customer where id = 'b'",
    "on delete set null": "delete from public.customer where id = 'b'",
    "on delete set default": "delete from public.customer where id = 'b'",
    "on update cascade": "update public.customer set id = 'x' where id = 'b'",
}


@pytest.mark.parametrize("action", list(CASCADES))
def test_a_cascade_reaches_partitions_and_is_checked_there(
    db: Database, action: str, isolation: psycopg.IsolationLevel
) -> None:
    plant(db)
    db.execute("create table public.customer (id text primary key)")
    db.execute("insert into public.customer values ('a'), ('b'), ('c')")
    db.execute("select fence.unprotect('public.t')")
    db.execute("alter table public.t add customer text default 'a'")
    db.execute("update public.t set customer = tenant")
    db.execute(f"alter table public.t add foreign key (customer) references public.customer {action}")
    protect(db, "public.t", TEMPLATE)
    before, leases = whereabouts(db), tenants(db)
    connection = db.connect("app", isolation=isolation)
    statement = CASCADES[action]
    assert attempt(connection, statement) == "LF004"
    assert attempt(connection, statement, leases["a"], leases["c"]) == "LF005"
    assert whereabouts(db) == before
    assert attempt(connection, statement, leases["b"]) == 1
    lost: Lease = supersede(db, leases["b"])
    assert lost.token > leases["b"].token
    assert attempt(connection, statement, leases["b"]) == "LF001"


def test_a_cascade_moves_rows_between_partitions(db: Database) -> None:
    """ON UPDATE CASCADE on the partition key and the resource at once."""
    db.execute("create table public.customer (id text primary key)")
    db.execute("insert into public.customer values ('a'), ('b')")
    db.execute(
        "create table public.k (id int, tenant text references public.customer on update cascade) "
        "partition by list (tenant)"
    )
    for name in "abx":
        db.execute(f"create table public.k_{name} partition of public.k for values in ('{name}')")
    db.execute("insert into public.k values (1, 'a'), (2, 'b')")
    protect(db, "public.k", TEMPLATE)
    leases = tenants(db, "abx")
    connection = db.connect("app")
    statement = "update public.customer set id = 'x' where id = 'a'"
    for claims, answer in (("", "LF004"), ("b", "LF005"), ("a", "LF005"), ("x", "LF005"), ("ax", 1)):
        assert attempt(connection, statement, *[leases[name] for name in claims]) == answer, claims


@pytest.mark.parametrize(
    ("kind", "key", "values", "setting"),
    [
        ("bpchar", "b", ("null", "''"), ""),
        ("bytea", "b", ("null", "''"), "set local bytea_output = 'escape'"),
        ("text", "(t is not null)", ("null", "'z'"), ""),
    ],
    ids=["blank", "bytes", "whole row"],
)
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_merge_that_moves_a_row_by_null_alone(
    db: Database, kind: str, key: str, values: tuple[str, str], setting: str, back: bool
) -> None:
    """Nothing but the trigger of rows that leave sees it, and its condition must not take null for empty."""
    if db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    start, end = reversed(values) if back else values
    with db.connect("app_owner", search_path="public") as owner:
        owner.execute(f"create table t (id int, tenant text, b {kind}, body text) partition by list ({key})")
        owner.execute(f"create table one partition of t for values in ({'null' if key == 'b' else 'true'})")
        owner.execute("create table other partition of t default")
        owner.execute(f"insert into t values (1, 'x', {start}, 'old')")
        owner.execute("grant all on t, one, other to app")
    protect(db, "public.t", "tenant:{tenant}")
    before = whereabouts(db)
    mine, other = acquire(db, "tenant:x"), acquire(db, "tenant:y")
    connection = db.connect("app", search_path="public")
    statement = (
        f"merge into public.t using (values (1)) v (n) on id = v.n when matched then update set b = {end}, body = 'new'"
    )
    for lease, answer in ((other, "LF005"), (mine, 1)):
        if setting:
            connection.execute(setting)
        assert attempt(connection, statement, lease) == answer
    present(connection, mine)
    connection.execute(statement)
    connection.commit()
    after = whereabouts(db)
    assert [row[0] for row in before] != [row[0] for row in after]
