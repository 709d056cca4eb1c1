"""Keys and names: rows of different resources never meet in one name, and one row has one name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from guards.scene import acquire, ask, check_refusal, contents, present, protect
from harness import Connection, Database, sqlstate
from psycopg import sql
from psycopg.types.json import Jsonb

LONGEST = "ü" * 31 + "x"  # 63 bytes


def resource_name(db: Database, template: str, values: dict[str, Any]) -> str:
    return str(db.execute("select fence.resource_name(%s, %s)", (template, Jsonb(values)), user="app")[0][0])


# -- several columns ---------------------------------------------------------------------------------------------------

PAIRS = [
    (("a", "b:c"), ("a:b", "c")),
    (("a:", "b"), ("a", ":b")),
    (("a", ""), ("", "a")),
    (("%3A", ""), (":", "")),
    (("a%3Ab", "c"), ("a:b", "c")),
    (("{", "}"), ("{}", "")),
    (("a", "b"), ("a", "B")),
    (("a", "b"), ("a", "b ")),
    (("a", "b"), (" a", "b")),
    (("\u00e9", "x"), ("e\u0301", "x")),
    (("\u212b", "x"), ("\u00c5", "x")),
    (("\U0001f600", "x"), ("\U0001f601", "x")),
    (("a\nb", "c"), ("a", "b\nc")),
    (("a\t", "c"), ("a", "\tc")),
    (("%", "25"), ("%25", "")),
    (("null", "x"), ("NULL", "x")),
    (("\u0131", "x"), ("i", "x")),
    (("\u00df", "x"), ("ss", "x")),
]


@pytest.mark.parametrize(("mine", "other"), PAIRS, ids=str)
def test_keys_that_a_careless_join_confuses_stay_apart(
    db: Database, mine: tuple[str, str], other: tuple[str, str]
) -> None:
    db.execute("create table public.pair (a text, b text, body text, primary key (a, b))")
    db.execute("insert into public.pair values (%s, %s, 'old'), (%s, %s, 'old')", (*mine, *other))
    protect(db, "public.pair", "pair:{a}:{b}")
    names = [resource_name(db, "pair:{a}:{b}", {"a": a, "b": b}) for a, b in (mine, other)]
    assert names[0] != names[1]
    connection = db.connect("app")
    for (a, b), (c, d), name in ((mine, other, names[0]), (other, mine, names[1])):
        lease = acquire(db, name)
        present(connection, lease)
        with sqlstate("LF005"):
            connection.execute("update public.pair set body = 'new' where a = %s and b = %s", (c, d))
        connection.rollback()
        present(connection, lease)
        assert connection.execute("update public.pair set body = 'new' where a = %s and b = %s", (a, b)).rowcount == 1
        connection.rollback()


@pytest.mark.parametrize("key", [("", None), (None, ""), (None, None)])
def test_a_null_in_the_key_belongs_to_nobody(
    db: Database, key: tuple[str | None, str | None], isolation: psycopg.IsolationLevel
) -> None:
    db.execute("create table public.pair (id int primary key, a text, b text)")
    db.execute("insert into public.pair values (1, '', '')")
    protect(db, "public.pair", "pair:{a}:{b}")
    connection = db.connect("app", isolation=isolation)
    lease = acquire(db, "pair::")
    for statement in (
        "insert into public.pair values (2, %s, %s)",
        "update public.pair set (a, b) = (%s, %s)",
    ):
        present(connection, lease)
        with sqlstate("LF005") as refused:
            connection.execute(statement, key)
        connection.rollback()
        check_refusal(refused.diag, table="pair")
        assert "null" in refused.diag.message_detail
    assert contents(db, "public.pair") == [(1, "", "")]


def test_a_row_whose_key_was_null_all_along_can_only_be_deleted_by_nobody(db: Database) -> None:
    db.execute("create table public.pair (id int primary key, a text)")
    protect(db, "public.pair", "pair:{a}")
    db.execute("alter table public.pair disable trigger user")
    db.execute("insert into public.pair values (1, null)")
    db.execute("alter table public.pair enable trigger user")
    connection = db.connect("app")
    lease = acquire(db, "pair:x")
    for statement in ("delete from public.pair", "update public.pair set a = 'x'"):
        present(connection, lease)
        with sqlstate("LF005"):
            connection.execute(statement)
        connection.rollback()


def test_a_key_of_ten_kilobytes_is_refused_and_not_cut(db: Database) -> None:
    db.execute("create table public.long (k text, body text)")
    protect(db, "public.long", "long:{k}")
    connection = db.connect("app")
    present(connection, acquire(db, "long:" + "x" * 1019))
    assert connection.execute("insert into public.long values (%s)", ("x" * 1019,)).rowcount == 1
    for size in (1018, 1020, 10_000, 1_000_000):
        with sqlstate("LF005"), connection.transaction():
            connection.execute("insert into public.long values (%s)", ("xy" * (size // 2),))
    with sqlstate("LF010"):
        ask(db, "long:" + "x" * 1020)


def test_two_tables_with_the_same_keys_are_apart_unless_their_templates_agree(db: Database) -> None:
    for table in ("one", "two", "three"):
        db.execute(f"create table public.{table} (id int primary key, body text)")
        db.execute(f"insert into public.{table} values (1, 'old')")
    protect(db, "public.one", "{@schema}.{@table}:{id}")
    protect(db, "public.two", "{@schema}.{@table}:{id}")
    protect(db, "public.three", "public.one:{id}")
    connection = db.connect("app")
    present(connection, acquire(db, "public.one:1"))
    assert connection.execute("update public.one set body = 'new'").rowcount == 1
    assert connection.execute("update public.three set body = 'new'").rowcount == 1
    with sqlstate("LF005"):
        connection.execute("update public.two set body = 'new'")


# -- types -------------------------------------------------------------------------------------------------------------

TYPES = {
    "smallint": [("1", "1"), ("-32768", "-32768")],
    "integer": [("1", "1"), ("-1", "-1")],
    "bigint": [("9007199254740993", "9007199254740993"), ("-9223372036854775808", "-9223372036854775808")],
    "text": [("a:b", "a%3Ab"), (" x ", " x "), ("", "")],
    "varchar(10)": [("a%", "a%25"), ("ab  ", "ab  ")],
    "uuid": [("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
    "boolean": [("t", "true"), ("off", "false")],
    "public.mood": [("so:so", "so%3Aso"), ("Happy", "Happy")],
    "public.positive": [("7", "7")],
    "public.nested": [("8", "8")],
    "public.label": [("x{y}", "x%7By%7D")],
    'text collate "C"': [("a", "a")],
}


def make_types(db: Database) -> None:
    db.execute("create type public.mood as enum ('so:so', 'Happy')")
    db.execute("create domain public.positive as int check (value > 0)")
    db.execute("create domain public.nested as public.positive check (value > 1)")
    db.execute("create domain public.label as varchar(20)")


@pytest.mark.parametrize("kind", list(TYPES))
def test_allowed_types_render_one_way_everywhere(db: Database, kind: str) -> None:
    make_types(db)
    db.execute(f"create table public.k (k {kind} primary key, body text)")
    protect(db, "public.k", "k:{k}")
    for settings in (
        "",
        "-c bytea_output=escape -c DateStyle=German -c IntervalStyle=verbose -c extra_float_digits=-5",
    ):
        connection = db.connect("app", options=settings.replace("verbose", "postgres_verbose"))
        for value, text in TYPES[kind]:
            lease = acquire(db, f"k:{text}", "1 h") if not settings else None
            if lease is None:
                db.execute("select fence.revoke(%s, 'next')", (f"k:{text}",))
                lease = acquire(db, f"k:{text}", "1 h")
            present(connection, lease)
            assert connection.execute("insert into public.k values (%s)", (value,)).rowcount == 1
            assert connection.execute("update public.k set body = 'new' where k::text is not null").rowcount == 1
            name = connection.execute("select fence.resource_for('public.k', jsonb_build_object('k', k)) from public.k")
            assert name.fetchall() == [(lease.resource,)]
            connection.rollback()


def make_anycase(db: Database) -> None:
    """A collation in which 'a' equals 'A'."""
    try:
        db.execute(
            "create collation public.anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL is built without ICU")
    db.execute("create domain public.anyname as text collate public.anycase")


REFUSED = {
    "numeric": "1.0",
    "date": "2026-01-01",
    "timestamptz": "2026-01-01",
    "double precision": "1",
    "real": "1",
    "bytea": "x",
    "interval": "1 day",
    "jsonb": "{}",
    "inet": "1.1.1.1",
    "char(3)": "a",
    '"char"': "a",
    "name": "a",
    "int[]": "{1}",
    "public.pair": "(1,2)",
    "int4range": "[1,2)",
    "money": "1",
    "bit(3)": "101",
    "public.price": "1.0",
    "text collate public.anycase": "a",
    "public.anyname": "a",
    "oid": "1",
    "regclass": "0",
}


@pytest.mark.parametrize("kind", list(REFUSED))
def test_other_types_are_refused_with_a_remedy(db: Database, kind: str) -> None:
    db.execute("create type public.pair as (a int, b int)")
    db.execute("create domain public.price as numeric(10, 2)")
    if "any" in kind:
        make_anycase(db)
    db.execute(f"create table public.k (id int primary key, k {kind} not null)")
    with sqlstate("LF010") as refused:
        protect(db, "public.k", "k:{k}")
    check_refusal(refused.diag, table="k")
    assert db.execute("select * from pg_trigger where tgrelid = 'public.k'::regclass") == []
    assert db.execute("select * from fence._guard", user="fence_owner") == []


DOMAINS = ("int", "bigint", "smallint", "uuid", "boolean", "text", "varchar(9)", "public.mood", "public.inner_domain")


@pytest.mark.parametrize("base", [*DOMAINS, "date", "time", "timestamp", "timestamptz", "name", "oid", "numeric"])
def test_a_guard_over_a_domain_is_armed_and_tells_moves(db: Database, base: str) -> None:
    """As a part of the key where such a key is allowed, else as what decides the partition."""
    db.execute("create type public.mood as enum ('x', 'y')")
    db.execute("create domain public.inner_domain as int")
    db.execute(f"create domain public.d as {base}")
    values = {
        "uuid": (UUID(int=1), UUID(int=2)),
        "boolean": (True, False),
        "public.mood": ("x", "y"),
        "date": ("2020-01-01", "2021-01-01"),
        "time": ("01:00", "02:00"),
        "timestamp": ("2020-01-01", "2021-01-01"),
        "timestamptz": ("2020-01-01", "2021-01-01"),
    }
    one, two = (str(value) for value in values.get(base, (1, 2)))
    if base in DOMAINS:
        db.execute("create table public.k (id int, d public.d)")
        protect(db, "public.k", "k:{d}")
        names = [f"k:{'true' if one == 'True' else one}", f"k:{'false' if two == 'False' else two}"]
    else:
        db.execute("create table public.k (id int, d public.d) partition by list (d)")
        db.execute(f"create table public.k1 partition of public.k for values in ('{one}')")
        db.execute("create table public.k2 partition of public.k default")
        protect(db, "public.k", "k:{id}")
        names = ["k:1", "k:2"]
    assert db.execute("select code, object from fence.audit() where severity = 'error'") == []
    assert db.execute("select armed from fence.protected_tables") == [(True,)]
    writer = db.connect("app")
    leases = [acquire(db, name) for name in names]
    present(writer, leases[0])
    writer.execute("insert into public.k values (1, %s::text::public.d)", (one,))
    writer.commit()
    move = f"update public.k set id = 2, d = '{two}'"
    for held, code in ((leases[0], "LF005"), (leases[1], "LF005")):
        present(writer, held)
        with sqlstate(code):
            writer.execute(move)
        writer.rollback()
    present(writer, *leases)
    assert writer.execute(move).rowcount == 1


@pytest.mark.parametrize("name", ["old", "new", "found", "tg_op", "tg_relid", "v_name", "v_names", "v_covered", "r"])
@pytest.mark.parametrize("tree", ["partitions", "children", "none"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_key_column_may_be_called_like_a_variable(db: Database, name: str, tree: str, mode: str) -> None:
    partitioned = " partition by list (id)" if tree == "partitions" else ""
    db.execute(f"create table public.t (id int, {name} text, body text){partitioned}")
    if tree == "partitions":
        db.execute("create table public.c partition of public.t default")
    elif tree == "children":
        db.execute("create table public.c () inherits (public.t)")
    db.execute("insert into public.t values (1, 'a')")
    protect(db, "public.t", f"k:{{{name}}}", p_mode=mode)
    writer = db.connect("app")
    present(writer, acquire(db, "k:a"))
    assert writer.execute("update public.t set body = 'x'").rowcount == 1
    writer.commit()
    assert db.execute("select from fence.violations") == []
    if mode == "observe":
        present(writer, acquire(db, "k:b"))
        writer.execute("update public.t set body = 'y'")
        writer.commit()
        assert len(db.execute("select from fence.violations")) == 1


@pytest.mark.parametrize("names", [("one", "two"), ("Ab", "aB"), ("x y", "x  y"), ("a(b", "a)b"), ('a"b', 'A"b')])
def test_the_doctor_notices_columns_that_have_swapped_their_names(db: Database, names: tuple[str, str]) -> None:
    one, two = (name.replace('"', '""') for name in names)
    db.execute(f'create table public.t (id int primary key, "{one}" text, "{two}" text)')
    protect(db, "public.t", f"tenant:{{{names[0]}}}")
    faults = "select object from fence.audit() where code = 'guard-altered'"
    assert db.execute(faults) == []
    for old, new in ((one, "tmp"), (two, one), ("tmp", two)):
        db.execute(f'alter table public.t rename "{old}" to "{new}"')
    assert db.execute(faults) == [("public.t",)]
    protect(db, "public.t", f"tenant:{{{names[0]}}}")
    assert db.execute(faults) == []


def test_a_generated_key_in_a_partitioned_table_is_refused_with_a_remedy(db: Database) -> None:
    generated = "k text generated always as ((id + 1)::text) stored"
    db.execute(f"create table public.k (id int, {generated}) partition by range (id)")
    with sqlstate("LF010") as refused:
        protect(db, "public.k", "k:{k}")
    assert "is generated" in refused.diag.message_detail
    protect(db, "public.k", "k:{id}")
    db.execute(f"create table public.plain (id int, {generated})")
    protect(db, "public.plain", "plain:{k}")


def test_a_virtual_generated_column_is_refused(db: Database) -> None:
    if db.cluster.version < 18:
        pytest.skip("virtual generated columns came with PostgreSQL 18")
    db.execute("create table public.k (id int primary key, k int generated always as (id + 1) virtual)")
    with sqlstate("LF010") as refused:
        protect(db, "public.k", "k:{k}")
    check_refusal(refused.diag, table="k")


def test_an_enum_with_a_cast_of_its_own_is_protected_or_refused_in_words(db: Database) -> None:
    """The cast is the type owner's code: it must neither name resources nor break protect."""
    db.execute("create type public.color as enum ('red', 'blue')")
    db.execute("create function public.lie(public.color) returns text language sql immutable as $$ select 'same' $$")
    db.execute("create cast (public.color as text) with function public.lie(public.color) as implicit")
    db.execute("create table public.k (id int primary key, k public.color not null)")
    db.execute("insert into public.k values (1, 'red')")
    try:
        protect(db, "public.k", "k:{k}")
    except psycopg.DatabaseError as error:
        assert error.sqlstate == "LF010"  # noqa: PT017
        return
    connection = db.connect("app")
    present(connection, acquire(db, "k:red"))
    with sqlstate("LF005"):
        connection.execute("update public.k set k = 'blue'")
    connection.rollback()
    present(connection, acquire(db, "k:blue"))
    with sqlstate("LF005"):
        connection.execute("update public.k set k = 'blue'")


# -- odd names ---------------------------------------------------------------------------------------------------------

NAMES = [
    "Order",
    "Größe 表",
    "user",
    "select",
    "a-b",
    "a.b",
    'a"b',
    "a'b",
    "a;drop table x",
    "%I",
    "%s%L%1$s",
    ":id",
    "$1",
    "$$",
    "$source$",
    "1st",
    "trailing ",
    " leading",
    "\U0001f600",
    "a\\b",
    "new",
    "old",
    "d",
    "r",
    "k1",
    "v_names",
    "tg_op",
    "new_rows",
    "@schema",
    "tableoid_",
    LONGEST,
]


@pytest.mark.parametrize("name", NAMES)
def test_odd_identifiers_work_all_the_way(db: Database, name: str) -> None:
    i = sql.Identifier
    table = sql.SQL("{}.{}").format(i(name), i(name))
    connection: Connection = db.connect("app_owner", autocommit=True)
    db.execute("grant create on database " + db.name + " to app_owner", user="fence_owner")
    connection.execute(sql.SQL("create schema {}").format(i(name)))
    connection.execute(sql.SQL("grant usage on schema {} to app, outsider").format(i(name)))
    column = "schema" if name == "@schema" else name
    connection.execute(sql.SQL("create table {} ({} text primary key, body text)").format(table, i(column)))
    connection.execute(sql.SQL("grant all on {} to app, outsider").format(table))
    label = table.as_string(connection)
    protect(db, label, "{" + column + "}/{@schema}/{@table}")
    values = {column: "x'y", "@schema": name, "@table": name}
    resource = resource_name(db, "{" + column + "}/{@schema}/{@table}", values)
    lease = acquire(db, resource)
    assert db.execute("select fence.resource_for(%s, %s)", (label, Jsonb({column: "x'y"})), user="app") == [(resource,)]
    with sqlstate("LF004") as refused:
        db.execute(f"insert into {label.replace('%', '%%')} values (%s, %s)", ("x'y", "old"), user="outsider")
    assert (refused.diag.schema_name, refused.diag.table_name) == (name, name)
    writer = db.connect("app")
    present(writer, lease)
    insert = sql.SQL("insert into {} values ('x''y', 'old'), ('z', 'old')").format(table)
    with sqlstate("LF005"), writer.transaction():
        writer.execute(insert)
    writer.execute(sql.SQL("insert into {} values ('x''y', 'old')").format(table))
    ((changed,),) = writer.execute(
        "select fence.fenced_update(%s, %s, %s, %s, %s, %s)",
        (label, Jsonb({column: "x'y"}), Jsonb({"body": "new"}), *lease.parameters),
    ).fetchall()
    assert changed == 1
    writer.commit()
    ((shown,),) = db.execute("select table_name from fence.protected_tables where armed")
    assert shown == name
    assert db.execute("select code from fence.audit() where severity = 'error'", user="monitor") == []
    db.execute("select fence.unprotect(%s)", (label,))
    db.execute(f"delete from {label.replace('%', '%%')} where %s = %s", ("", ""), user="outsider")


TWIN = "t" * 62
TWINS = {
    "tables that differ in byte 63": (f"public.{TWIN}a", f"public.{TWIN}b"),
    "schemas that differ in byte 63": (f"{TWIN}a.t", f"{TWIN}b.t"),
    "one name in two schemas": ("one.t", "two.t"),
    "braces": ('public."{x}"', 'public."{y}"'),
}


@pytest.mark.parametrize("which", TWINS)
def test_twins_are_guarded_each_for_itself(db: Database, which: str) -> None:
    leases = []
    for number, table in enumerate(TWINS[which]):
        schema = table.partition(".")[0]
        if schema != "public":
            db.execute(f"create schema {schema} authorization app_owner", user="postgres")
            db.execute(f"grant usage on schema {schema} to app, fence_owner", user="postgres")
        columns = [f"{TWIN}{letter}" for letter in ("ab", "ba")[number]]
        db.execute(f"create table {table} ({columns[0]} int, {columns[1]} int, primary key ({columns[0]}))")
        db.execute(f"grant all on {table} to app")
        protect(db, table, f"{{@schema}}.{{@table}}:{{{columns[0]}}}")
        ((name,),) = db.execute("select fence.resource_for(%s, %s)", (table, Jsonb({columns[0]: 1})), user="app")
        leases.append(acquire(db, name))
    writer = db.connect("app")
    for mine, other in ((0, 1), (1, 0)):
        present(writer, leases[other])
        with sqlstate("LF005"), writer.transaction():
            writer.execute(f"insert into {TWINS[which][mine]} values (1, 2)")
        present(writer, leases[mine])
        assert writer.execute(f"insert into {TWINS[which][mine]} values (1, 2)").rowcount == 1
        writer.rollback()
    assert db.execute("select code from fence.audit() where severity = 'error'", user="monitor") == []
    first, second = TWINS[which]
    db.execute("select fence.unprotect(%s)", (first,))
    assert writer.execute(f"insert into {first} values (1, 2)").rowcount == 1
    with sqlstate("LF004"):
        writer.execute(f"insert into {second} values (1, 2)")


@pytest.mark.parametrize("name", [*NAMES, "a\nb", "x" * 1024])
def test_odd_resource_names_are_names(db: Database, name: str) -> None:
    db.execute("create table public.t (id int primary key)")
    template = name.replace("{", "{{").replace("}", "}}")
    protect(db, "public.t", template)
    connection = db.connect("app")
    with sqlstate("LF004"), connection.transaction():
        connection.execute("insert into public.t values (1)")
    present(connection, acquire(db, name))
    assert connection.execute("insert into public.t values (1)").rowcount == 1


# -- one rendering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "values", "name"),
    [
        ("report:{id}", {"id": 1}, "report:1"),
        ("report:{id}", {"id": "1"}, "report:1"),
        ("report:{id}", {"id": 9007199254740993, "more": None}, "report:9007199254740993"),
        ("t:{a}:{b}", {"a": True, "b": False}, "t:true:false"),
        ("t:{a}", {"a": "{b}:%"}, "t:%7Bb%7D%3A%25"),
        ("{{{a}}}", {"a": "x"}, "{x}"),
        ("{a}{a}", {"a": "x"}, "xx"),
        ("{@schema}.{@table}", {"@schema": "s:1", "@table": "t"}, "s%3A1.t"),
        ("nightly", {}, "nightly"),
        ("{a b}", {"a b": "x"}, "x"),
        ("{ä}", {"ä": "ö"}, "ö"),
        ("{a}", {"a": ""}, ""),
    ],
)
def test_resource_name_renders_as_documented(db: Database, template: str, values: dict[str, Any], name: str) -> None:
    assert resource_name(db, template, values) == name


def test_resource_for_reads_the_row_where_the_key_says_too_little(db: Database) -> None:
    db.execute("create table public.t (id int primary key, tenant text)")
    db.execute("insert into public.t values (1, 'a:b'), (2, null)")
    db.execute("alter table public.t alter tenant drop not null")
    db.execute("delete from public.t where id = 2")
    protect(db, "public.t", "tenant:{tenant}")
    call = "select fence.resource_for('public.t', %s)"
    assert db.execute(call, (Jsonb({"id": 1}),), user="app") == [("tenant:a%3Ab",)]
    assert db.execute(call, (Jsonb({"tenant": "x"}),), user="app") == [("tenant:x",)]
    assert db.execute(call, (Jsonb({"tenant": "x", "id": 7}),), user="app") == [("tenant:x",)]
    with sqlstate("LF010") as refused:
        db.execute(call, (Jsonb({"id": 99}),), user="app")
    check_refusal(refused.diag, table="t")
    db.execute("revoke all on public.t from outsider")
    with sqlstate("42501"):
        db.execute(call, (Jsonb({"id": 1}),), user="outsider")
