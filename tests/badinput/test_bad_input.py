"""Bad input: one clear error with its code and a hint, before anything is written; nothing half-done stays."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, check_refusal, protect
from harness import SUPERUSER, Database, sqlstate
from psycopg.types.json import Jsonb

LONG = "x" * 1025


@pytest.fixture(scope="module")
def report(db: Database) -> str:
    db.execute(
        "create table public.report (id int primary key, code text, body text, more int generated always as (1) stored)"
    )
    db.execute("create unique index on public.report (code)")
    db.execute("create unique index on public.report (body) where id > 5")
    db.execute("create unique index on public.report (lower(body))")
    db.execute("create table public.pair (a int, b int, body text, primary key (a, b))")
    db.execute(
        "create table public.late (id int, constraint late_key unique (id) deferrable initially deferred, body text)"
    )
    db.execute("insert into public.report values (1, 'one', 'old'), (2, 'two', 'old2')")
    db.execute("insert into public.pair values (1, 2, 'old')")
    protect(db, "public.report", "report:{id}")
    protect(db, "public.pair", "pair:{a}:{b}")
    protect(db, "public.late", "late")
    return "public.report"


@pytest.fixture(scope="module")
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1", "1 h")


def state(db: Database) -> list[Any]:
    """Everything that a call could have left behind."""
    return [
        db.execute(f"select t::text from {table} t order by 1", user=user)
        for table, user in (
            ("fence._lease", "fence_owner"),
            ("fence._guard", "fence_owner"),
            ("fence._history", "fence_owner"),
            ("public.report", "app_owner"),
            ("public.pair", "app_owner"),
        )
    ]


def refused(
    db: Database, call: str, parameters: Any = None, *, table: str = "", user: str = "app"
) -> psycopg.errors.Diagnostic:
    """LF010 with every field, and nothing left behind."""
    before = state(db)
    with sqlstate("LF010") as refusal:
        db.execute(f"select fence.{call}", parameters, user=user)
    check_refusal(refusal.diag, table=table)
    assert state(db) == before
    return refusal.diag


# -- names -------------------------------------------------------------------------------------------------------------

NAMES = [None, "", LONG, "x" * 10_000_000, "ü" * 513, "report:{id}", "{}x{id}", "a{b c}d"]
CALLS = {
    "acquire": "acquire(%s)",
    "renew": "renew(%s, 1, 'x')",
    "release": "release(%s, 1, 'x')",
    "present": "present(%s, 1, 'x')",
    "present_all": "present_all(array[%s::text], '{1}', '{x}')",
    "revoke": "revoke(%s, 'why')",
}


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("name", NAMES, ids=lambda name: str(name)[:12])
def test_what_cannot_be_a_name(db: Database, report: str, call: str, name: str | None) -> None:
    diag = refused(db, CALLS[call], (name,), user="app_owner")
    if name and "{" in name:
        assert "placeholder" in str(diag.message_primary)


def test_a_nul_cannot_even_be_sent(db: Database, report: str) -> None:
    with pytest.raises(psycopg.DataError):
        db.execute("select fence.acquire(%s)", ("a\0b",), user="app")
    with sqlstate("22021"):
        db.execute("select fence.acquire(convert_from('\\x6100', 'UTF8'))", user="app")
    with sqlstate("22P05"):
        db.execute("select fence.resource_name('{a}', '{\"a\": \"\\u0000\"}')", user="app")


def test_names_at_the_limit_are_names(db: Database, report: str) -> None:
    for name in ("x" * 1024, "ü" * 512, " ", "{", "}", "}{"):
        assert acquire(db, name).resource == name


# -- ttls and labels ---------------------------------------------------------------------------------------------------

TTLS = [
    "0",
    "-1 s",
    "1 day 1 microsecond",
    "25 hours",
    "1 year",
    "1 month",
    "-1 month 30 days",
    "-1 day 24 hours",
    "178000000 years",
]


@pytest.mark.parametrize("ttl", [None, *TTLS])
def test_what_cannot_be_a_ttl(db: Database, lease: Lease, ttl: str | None) -> None:
    refused(db, "acquire('new', %s::interval)", (ttl,))
    if ttl is not None:
        refused(db, "renew(%s, %s, %s, %s::interval)", (*lease.parameters, ttl))
        refused(db, "renew_all(array[%s], array[%s::bigint], array[%s], %s::interval)", (*lease.parameters, ttl))


@pytest.mark.parametrize("ttl", ["infinity", "-infinity"])
def test_a_ttl_without_end(db: Database, lease: Lease, ttl: str) -> None:
    if db.cluster.version >= 17:
        refused(db, "acquire('new', %s::interval)", (ttl,))
        refused(db, "renew(%s, %s, %s, %s::interval)", (*lease.parameters, ttl))
    else:
        with sqlstate("22007"):
            db.execute("select fence.acquire('new', %s::interval)", (ttl,), user="app")


@pytest.mark.parametrize("ttl", ["'NaN'", "'five'", "5", "'NaN'::float8"])
def test_a_ttl_of_another_type_is_postgresqls_to_refuse(db: Database, report: str, ttl: str) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        db.execute(f"select fence.acquire('new', {ttl})", user="app")
    assert refusal.value.sqlstate in ("22007", "42883")


def test_ttls_at_the_limits(db: Database, lease: Lease) -> None:
    for ttl, seconds in (("1 day", 86400), ("24 hours", 86400), ("1 ms", 0.001), ("1.5 s", 1.5)):
        acquire(db, f"ttl:{ttl}", ttl)
        ((left,),) = db.execute(
            "select extract(epoch from expires_at - acquired_at)::float8 from fence.leases where resource = %s",
            (f"ttl:{ttl}",),
            user="monitor",
        )
        assert abs(left - seconds) < 1e-6
    other = acquire(db, "ttl:renewed", "30 s")
    db.execute("select fence.renew(%s, %s, %s, null)", other.parameters, user="app")
    ((left,),) = db.execute(
        "select extract(epoch from expires_at - clock_timestamp())::float8 from fence.leases "
        "where resource = 'ttl:renewed'",
        user="monitor",
    )
    assert 25 < left <= 30, "a null ttl keeps the granted one"


def test_labels(db: Database, report: str) -> None:
    refused(db, "acquire('new', '30 s', %s)", (LONG,))
    label = "x" * 1024
    assert db.execute("select owner from fence.acquire('label', '30 s', %s)", (label,), user="app") == [(label,)]


@pytest.mark.parametrize("reason", [None, "", LONG])
def test_a_revocation_says_why(db: Database, lease: Lease, reason: str | None) -> None:
    refused(db, "revoke('report:1', %s)", (reason,), user="app_owner")


def test_texts_have_1024_bytes_at_the_most(db: Database, report: str) -> None:
    lease = acquire(db, "texts")
    longest = "x" * 1024
    finished = "_finished(%s, %s, %s, %s, true)"
    refused(db, finished, (*lease.parameters, LONG))
    assert db.execute(f"select fence.{finished}", (*lease.parameters, longest), user="app") == [(True,)]
    assert db.execute("select fence.revoke('texts', %s)", (longest,)) == [(True,)]
    assert db.execute("select fence.resource_name(%s, '{}')", (longest,), user="app") == [(longest,)]
    values = Jsonb({"a": longest[4:]})
    assert db.execute("select fence.resource_name('{a}rest', %s)", (values,), user="app") == [(longest[4:] + "rest",)]
    refused(db, "resource_name('{a}rest.', %s)", (values,))


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["renew", "release", "present"])
def test_a_claim_has_three_parts(db: Database, lease: Lease, call: str) -> None:
    for missing in range(3):
        parameters = [value if n != missing else None for n, value in enumerate(lease.parameters)]
        diag = refused(db, f"{call}(%s, %s::bigint, %s)", parameters)
        assert ("name", "token", "secret")[missing] in diag.message_detail


def test_tokens_are_numbers(db: Database, lease: Lease) -> None:
    for literal, code in (
        ("'abc'", "22P02"),
        ("'1.0'", "22P02"),
        ("1.0", "42883"),
        ("'9223372036854775808'", "22003"),
        ("true", "42883"),
    ):
        with sqlstate(code):
            db.execute(f"select fence.present('report:1', {literal}, 'x')", user="app")


@pytest.mark.parametrize(
    "arrays",
    [
        (["a"], [1, 2], ["x"]),
        (["a", "b"], [1], ["x"]),
        (["a"], [1], []),
        (None, [1], ["x"]),
        (["a"], None, ["x"]),
        (["a"], [1], None),
        ([["a", "b"]], [[1, 2]], [["x", "y"]]),
        ([["a"], ["b"]], [1, 2], ["x", "y"]),
    ],
    ids=str,
)
def test_arrays_of_claims_fit_together(db: Database, lease: Lease, arrays: Any) -> None:
    refused(db, "present_all(%s::text[], %s::bigint[], %s::text[])", arrays)
    refused(db, "renew_all(%s::text[], %s::bigint[], %s::text[], '30 s')", arrays)


def test_a_null_among_the_claims(db: Database, lease: Lease) -> None:
    for arrays in (([None], [1], ["x"]), (["a"], [None], ["x"]), (["a"], [1], [None])):
        refused(db, "present_all(%s::text[], %s::bigint[], %s::text[])", arrays)


# -- templates and keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "values"),
    [
        (None, "{}"), ("", "{}"), ("{a}", None), ("{a}", "[]"), ("{a}", "null"), ("{a}", "1"), ("{a}", "{}"),
        ("{a}", '{"a": null}'), ("{a}", '{"a": 1.5}'), ("{a}", '{"a": 1e3}'), ("{a}", '{"a": 1.0}'),
        ("{a}", '{"a": []}'),
        ("{a}", '{"a": {}}'), ("{a", '{"a": 1}'), ("a}", '{"a": 1}'), ("{}", '{"": 1}'), ("{a}}", '{"a": 1}'),
        ("{{a}", '{"a": 1}'), ("{@schema}", "{}"), ("{A}", '{"a": 1}'), ("x" * 1025, "{}"), ("{a}" * 2000, '{"a": 1}'),
        ("{a}", '{"a": "' + LONG + '"}'),
    ],
    ids=lambda value: str(value)[:16],
)  # fmt: skip
def test_templates_without_a_name(db: Database, report: str, template: str | None, values: str | None) -> None:
    if values == '{"a": 1e3}':
        assert db.execute("select fence.resource_name(%s, %s::jsonb)", (template, values), user="app") == [("1000",)]
        return
    refused(db, "resource_name(%s, %s::jsonb)", (template, values))


KEYS = [
    None,
    Jsonb(None),
    Jsonb([]),
    Jsonb(1),
    Jsonb({}),
    Jsonb({"nowhere": 1}),
    Jsonb({"ID": 1}),
    Jsonb({'"id"': 1}),
    Jsonb({"id": None}),
    Jsonb({"body": "old"}),
    Jsonb({"id": 1, "code": "one"}),
    Jsonb({"id": 1, "nowhere": 1}),
    Jsonb({"ctid": "(0,1)"}),
    Jsonb({"": 1}),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(getattr(key, "obj", key)))
def test_a_key_is_exactly_a_unique_key(db: Database, lease: Lease, key: Jsonb | None) -> None:
    changes = Jsonb({"body": "new"})
    refused(db, "fenced_update('public.report', %s, %s, %s, %s, %s)", (key, changes, *lease.parameters), table="report")


@pytest.mark.parametrize("key", [{"a": 1}, {"b": 2}, {"a": 1, "b": 2, "body": "old"}, {"a": 1, "b": None}], ids=str)
def test_part_of_a_key_is_none(db: Database, lease: Lease, key: dict[str, Any]) -> None:
    call = "fenced_update('public.pair', %s, %s, %s, %s, %s)"
    refused(db, call, (Jsonb(key), Jsonb({"body": "x"}), *lease.parameters), table="pair")


def test_a_deferred_key_finds_no_single_row(db: Database, lease: Lease) -> None:
    call = "fenced_update('public.late', %s, %s, %s, %s, %s)"
    refused(db, call, (Jsonb({"id": 1}), Jsonb({"body": "x"}), *lease.parameters), table="late")


CHANGES = [None, Jsonb(None), Jsonb([]), Jsonb({}), Jsonb("x"), Jsonb({"nowhere": 1}), Jsonb({"more": 2}),
           Jsonb({"ctid": "x"}),
           Jsonb({"body": "x", "Body": "y"}), Jsonb({"body; drop table public.report": "x"})]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES, ids=lambda key: str(getattr(key, "obj", key)))
def test_changes_name_columns_that_can_be_written(db: Database, lease: Lease, changes: Jsonb | None) -> None:
    call = "fenced_update('public.report', %s, %s, %s, %s, %s)"
    refused(db, call, (Jsonb({"id": 1}), changes, *lease.parameters), table="report")


def test_fenced_update_does_what_it_says(db: Database, lease: Lease) -> None:
    call = "select fence.fenced_update('public.report', %s, %s, %s, %s, %s)"

    def update(key: dict[str, Any], changes: dict[str, Any]) -> int:
        return int(db.execute(call, (Jsonb(key), Jsonb(changes), *lease.parameters), user="app")[0][0])

    assert update({"id": 1}, {"body": "new"}) == 1
    assert update({"code": "one"}, {"body": None}) == 1
    assert update({"id": "1"}, {"body": "text", "code": "uno"}) == 1
    assert update({"id": 99}, {"body": "x"}) == 0
    assert db.execute("select body, code from public.report where id = 1") == [("text", "uno")]
    for key, changes, code in (
        ({"id": 2}, {"body": "x"}, "LF005"),
        ({"id": 1}, {"id": 2}, "23505"),
        ({"id": 1}, {"id": 3}, "LF005"),
        ({"id": "one"}, {"body": "x"}, "22P02"),
        ({"id": 1.5}, {"body": "x"}, "22P02"),
        ({"id": 10**30}, {"body": "x"}, "22003"),
    ):
        before = state(db)
        with sqlstate(code):
            update(key, changes)
        assert state(db) == before


def test_a_key_under_another_collation_is_none(db: Database, lease: Lease) -> None:
    """A unique index may tell apart what its column calls equal: one row means one row."""
    try:
        db.execute(
            "create collation public.anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL is built without ICU")
    db.execute("create table public.name (id int, k text collate public.anycase, body text)")
    db.execute('create unique index on public.name (k collate "C")')
    db.execute("insert into public.name values (1, 'a', 'old'), (2, 'A', 'old')")
    protect(db, "public.name", "names")
    names = acquire(db, "names")
    call = "select fence.fenced_update('public.name', %s, %s, %s, %s, %s)"
    with sqlstate("LF010") as refusal:
        db.execute(call, (Jsonb({"k": "a"}), Jsonb({"body": "new"}), *names.parameters), user="app")
    check_refusal(refusal.diag, table="name")
    assert db.execute("select id from public.name where body = 'new'") == []


def test_a_key_under_another_name_of_its_collation_is_none(db: Database, lease: Lease) -> None:
    db.execute('create table public.posix (k text collate "C" not null, body text)')
    db.execute('create unique index on public.posix (k collate "POSIX")')
    protect(db, "public.posix", "names")
    refused(db, "fenced_update('public.posix', '{\"k\": \"a\"}', '{\"body\": \"x\"}', 'names', 1, 'x')", table="posix")


def test_a_unique_index_may_include_more_than_its_key(db: Database, lease: Lease) -> None:
    db.execute("create table public.including (id int not null, extra int, body text)")
    db.execute("create unique index on public.including (id) include (extra)")
    db.execute("insert into public.including values (1, 1, 'old')")
    protect(db, "public.including", "including")
    call = "select fence.fenced_update('public.including', %s, %s, %s, %s, %s)"
    values = (Jsonb({"id": 1}), Jsonb({"body": "new"}), *acquire(db, "including").parameters)
    assert db.execute(call, values, user="app") == [(1,)]


def test_a_key_under_an_operator_class_of_somebodys_is_compared_by_its_own_equality(db: Database, lease: Lease) -> None:
    db.execute(
        "create operator class public.backwards for type int4 using btree as operator 1 >, operator 2 >=, operator 3 =,"
        " operator 4 <=, operator 5 <, function 1 pg_catalog.btint4cmp(int4, int4)",
        user=SUPERUSER,
    )
    db.execute("create table public.backward (id int not null, body text)")
    db.execute("create unique index on public.backward (id public.backwards)")
    db.execute("insert into public.backward values (1, 'old'), (2, 'old')")
    protect(db, "public.backward", "names:{id}")
    claim = acquire(db, "names:1")
    call = "select fence.fenced_update('public.backward', %s, %s, %s, %s, %s)"
    assert db.execute(call, (Jsonb({"id": 1}), Jsonb({"body": "new"}), *claim.parameters), user="app") == [(1,)]
    assert db.execute("select id from public.backward where body = 'new'") == [(1,)]


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", ["resource_for(%s, '{\"id\": 1}')", "fenced_update(%s, '{\"id\": 1}', '{\"id\": 1}', 'x', 1, 'x')"]
)
def test_tables_that_are_not_protected(db: Database, report: str, call: str) -> None:
    db.execute("create table if not exists public.bare (id int primary key)")
    db.execute("create or replace view public.seen as select * from public.report")
    refused(db, call, ("public.bare",), table="bare")
    refused(db, call, ("public.seen",), table="seen")
    refused(db, call.replace("%s", "null"))
    refused(db, call.replace("%s", "4000000000::oid::regclass"))
    with sqlstate("42P01"):
        db.execute(f"select fence.{call}", ("public.nowhere",), user="app")
    with sqlstate("42P01"):
        db.execute(f"select fence.{call}", ("report",), user="app")


@pytest.mark.parametrize("call", ["set_mode(%s, 'enforce')", "unprotect(%s)"])
def test_administration_of_tables_that_are_not_protected(db: Database, report: str, call: str) -> None:
    db.execute("create table if not exists public.bare (id int primary key)")
    refused(db, call, ("public.bare",), table="bare", user="app_owner")
    refused(db, call.replace("%s", "null"), user="app_owner")
    for mode in ("null", "''", "'off'"):
        before = state(db)
        with sqlstate("LF010"):
            db.execute(f"select fence.set_mode('public.report', {mode})")
        assert state(db) == before


def test_a_refusal_names_the_table_it_is_about(db: Database, lease: Lease) -> None:
    for statement, code in (("update public.report set body = 'x'", "LF004"), ("truncate public.report", "LF004")):
        with sqlstate(code) as refusal:
            db.execute(statement, user="outsider")
        check_refusal(refusal.diag, table="report")
        assert "public.report" in refusal.diag.message_primary
        assert "fence.present(" in refusal.diag.message_hint
