"""Doing literally what the hint of a refusal says mends it: for every code, and for every cause of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from errors.reader import Reader, commands
from guards.scene import (
    Lease,
    acquire,
    check_refusal,
    contents,
    expire,
    forge,
    present,
    protect,
    release,
    revoke,
    startup,
    supersede,
)
from harness import Connection, Database, edit_authority, sqlstate

import pyfence

UPDATE = "update public.report set body = 'new' where id = 1"


@pytest.fixture
def report(db: Database) -> str:
    """Rows 1 and 2, a resource each."""
    db.execute("create table public.report (id int primary key, body text, token bigint)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


@pytest.fixture
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1")


def refusal(code: str, connection: Connection, statement: str, parameters: Any = None) -> Any:
    """The diagnostics of a statement that is refused; the transaction is rolled back."""
    with sqlstate(code) as refused:
        connection.execute(statement, parameters)
    if not connection.autocommit:
        connection.rollback()
    check_refusal(refused.diag, table=refused.diag.table_name or "", schema=refused.diag.schema_name)
    return refused.diag


PRESENT = "select fence.present(%s, %s, %s)"
RENEW = "select fence.renew(%s, %s, %s)"


# -- LF001 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [PRESENT, RENEW, "guard"])
@pytest.mark.parametrize(
    ("cause", "word"),
    [
        ("superseded", "superseded"),
        ("revoked", "closed: revoked"),
        ("released", "closed: released"),
        ("closed by a request", "closed: expired"),
        ("earlier lineage", "earlier lineage"),
    ],
)
def test_stale_token(db: Database, lease: Lease, cause: str, word: str, call: str) -> None:
    newer = None
    if cause == "superseded":
        newer = supersede(db, lease)
    elif cause == "revoked":
        revoke(db, "report:1")
    elif cause == "released":
        release(db, lease)
    elif cause == "earlier lineage":
        edit_authority(db.url("fence_owner"), "lineage = lineage + 1")
    else:
        keeper = db.connect("app")
        present(keeper, lease)
        expire(db, "report:1")
        assert db.execute("select reason from fence.acquire('report:1')", user="app") == [("draining",)]
        keeper.rollback()
    connection = db.connect("app")
    if call == "guard":
        forge(connection, lease)
        diag = refusal("LF001", connection, UPDATE)
    else:
        diag = refusal("LF001", connection, call, lease.parameters)
    assert word in diag.message_detail
    if newer is not None:
        assert db.execute(commands(diag.message_hint)[0], user="app")[0][6] == "held", "somebody else is at it"
        release(db, newer)
    reader = Reader(db, lease)
    reader.follow(diag.message_hint)
    reader.transaction.execute(PRESENT, ("report:1", reader.known["token"], reader.known["secret"].strip("'")))
    assert reader.write(UPDATE) == 1


# -- LF002 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [RENEW, "guard"])
def test_expired(db: Database, lease: Lease, call: str) -> None:
    connection = db.connect("app")
    if call == "guard":
        present(connection, lease)
    expire(db, "report:1")
    diag = refusal("LF002", connection, *((UPDATE,) if call == "guard" else (call, lease.parameters)))
    reader = Reader(db, lease)
    reader.follow(diag.message_hint)
    reader.transaction.execute(PRESENT, ("report:1", reader.known["token"], reader.known["secret"].strip("'")))
    assert reader.write(UPDATE) == 1


# -- LF004 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["app", "outsider"])
@pytest.mark.parametrize("template", ["report:{id}", "nightly", "it's {id}", "{@schema}.{@table}"])
def test_no_claim(db: Database, report: str, template: str, user: str) -> None:
    protect(db, report, template)
    diag = refusal("LF004", db.connect(user), UPDATE)
    reader = Reader(db, user=user, key_as_jsonb="'{\"id\": 1}'")
    reader.follow(diag.message_hint)
    assert reader.write(UPDATE) == 1


def test_no_claim_on_a_row_that_is_not_there_yet(db: Database, report: str) -> None:
    insert = "insert into public.report values (9, 'new')"
    diag = refusal("LF004", db.connect("app"), insert)
    reader = Reader(db, key_as_jsonb="'{\"id\": 9}'")
    reader.follow(diag.message_hint)
    assert reader.write(insert) == 1


def test_no_claim_to_truncate(db: Database, report: str) -> None:
    protect(db, report, "nightly")
    diag = refusal("LF004", db.connect("app"), "truncate public.report")
    reader = Reader(db)
    reader.follow(diag.message_hint)
    reader.write("truncate public.report")
    assert contents(db, report) == []


# -- LF005 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["2", "it's %L", 'a"b\\', "{x}"])
def test_another_rows_resource(db: Database, name: str) -> None:
    db.execute("create table public.named (name text primary key, body text)")
    db.execute("insert into public.named values (%s)", (name,))
    protect(db, "public.named", "report:{name}")
    other = acquire(db, "something else")
    statement = "update public.named set body = 'new'"
    connection = db.connect("app")
    present(connection, other)
    diag = refusal("LF005", connection, statement)
    reader = Reader(db)
    present(reader.transaction, other)
    reader.follow(diag.message_hint)
    assert reader.write(statement) == 1


def test_a_key_that_is_null(db: Database) -> None:
    db.execute("create table public.named (id int, name text, body text)")
    protect(db, "public.named", "name:{name}")
    lease = acquire(db, "name:a")
    connection = db.connect("app")
    present(connection, lease)
    diag = refusal("LF005", connection, "insert into public.named values (1)")
    assert "Give every key column of the row a value" in diag.message_hint
    assert "fence.protected_tables" in diag.message_hint
    assert ("name:{name}",) in db.execute("select resource from fence.protected_tables", user="monitor")
    present(connection, lease)
    assert connection.execute("insert into public.named values (1, 'a')").rowcount == 1


def test_a_truncate_of_many_resources(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    present(connection, lease)
    diag = refusal("LF005", connection, "truncate public.report")
    assert "delete from" in diag.message_hint
    present(connection, lease)
    assert connection.execute("delete from public.report where id = 1").rowcount == 1


def test_a_truncate_of_a_table_with_a_covering_lease(db: Database, report: str) -> None:
    protect(db, report, "report:{id}", p_covering="all reports")
    connection = db.connect("app")
    present(connection, acquire(db, "report:1"))
    diag = refusal("LF005", connection, "truncate public.report")
    (asking,) = commands(diag.message_hint.rpartition("cover")[2])
    _, name, token, secret, *_ = db.connect("app", autocommit=True).execute(asking).fetchone()
    present(connection, Lease(name, token, secret))
    connection.execute("truncate public.report")


# -- LF006 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [PRESENT, RENEW, "guard"])
def test_a_lease_that_was_never_granted(db: Database, report: str, call: str) -> None:
    made_up = Lease("report:1", 7, "0" * 32)
    connection = db.connect("app")
    if call == "guard":
        forge(connection, made_up)
        diag = refusal("LF006", connection, UPDATE)
    else:
        diag = refusal("LF006", connection, call, made_up.parameters)
    reader = Reader(db)
    reader.follow(diag.message_hint)
    reader.transaction.execute(PRESENT, ("report:1", reader.known["token"], reader.known["secret"].strip("'")))
    assert reader.write(UPDATE) == 1


@pytest.mark.parametrize("wrong", [{"secret": "0" * 32}, {"token": 2**62}])
def test_not_the_holder(db: Database, lease: Lease, wrong: dict[str, Any]) -> None:
    """The hint names two ways: what acquire returned, or the lease itself once it is free."""
    connection = db.connect("app")
    diag = refusal("LF006", connection, PRESENT, replace(lease, **wrong).parameters)
    assert "Present what acquire returned" in diag.message_hint
    present(connection, lease)
    assert connection.execute(UPDATE).rowcount == 1
    connection.rollback()
    release(db, lease)
    reader = Reader(db)
    reader.follow(diag.message_hint)


# -- LF007, LF008 ------------------------------------------------------------------------------------------------------


def counted(db: Database, lease: Lease, sequence: int | None) -> Connection:
    connection = db.connect("app")
    connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, sequence))
    return connection


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_applied_already(db: Database, report: str, lease: Lease, writes: str, largest: bool) -> None:
    protect(db, report, "report:{id}", p_writes=writes)
    sequence = 2**63 - 1 if largest else 5
    first = counted(db, lease, sequence)
    first.execute(UPDATE)
    first.commit()
    diag = refusal("LF007", counted(db, lease, sequence), UPDATE)
    assert diag.message_hint.startswith("Nothing to do for a retry.")
    reader = Reader(db, lease)
    reader.follow(diag.message_hint)
    if "fence.release" in diag.message_hint:
        values = ("report:1", reader.known["token"], reader.known["secret"].strip("'"), 1)
        reader.transaction.execute("select fence.present(%s, %s, %s, %s)", values)
    assert reader.write(UPDATE) == 1


@pytest.mark.parametrize("largest", [False, True])
def test_backwards(db: Database, report: str, lease: Lease, largest: bool) -> None:
    protect(db, report, "report:{id}", p_writes="sequenced")
    first = counted(db, lease, 2**63 - 1 if largest else 5)
    first.execute(UPDATE)
    first.commit()
    diag = refusal("LF008", counted(db, lease, 4), UPDATE)
    reader = Reader(db, lease)
    reader.follow(diag.message_hint)
    if largest:
        values = ("report:1", reader.known["token"], reader.known["secret"].strip("'"), 1)
        reader.transaction.execute("select fence.present(%s, %s, %s, %s)", values)
    assert reader.write(UPDATE) == 1


def test_no_sequence(db: Database, report: str, lease: Lease) -> None:
    protect(db, report, "report:{id}", p_writes="sequenced")
    diag = refusal("LF008", counted(db, lease, None), UPDATE)
    reader = Reader(db, lease, sequence="1")
    reader.follow(diag.message_hint)
    assert reader.write(UPDATE) == 1


# -- LF009 -------------------------------------------------------------------------------------------------------------


def test_tokens_used_up(db: Database, lease: Lease) -> None:
    db.execute("update fence._lease set token = 9223372036854775807", user="fence_owner")
    expire(db, "report:1")
    diag = refusal("LF009", db.connect("app"), "select * from fence.acquire('report:1')")
    assert "under a new resource name" in diag.message_hint
    assert acquire(db, "report:one")


# -- LF010 -------------------------------------------------------------------------------------------------------------

SETUP = """
create table public.t (id int primary key, name text, amount numeric, body text, token bigint, doubled int
  generated always as (id * 2) stored);
insert into public.t values (1, 'a', 1, 'old');
create table public.tree (id int, day int) partition by list (day);
create table public.leaf partition of public.tree for values in (1);
create view public.v as select * from public.t;
create table public.bare (id int);
create table public.computed (id int, day int, twice int generated always as (id * 2) stored) partition by list (day);
create function public.nothing() returns trigger language plpgsql as 'begin return null; end';
create trigger "0_fence_mine" after update on public.bare execute function public.nothing();
"""

LONG = "x" * 2000
CLAIM = "'report:1', 1, 'x'"

T, G = "select fence.protect('public.t', ", "select fence.resource_for('public.guarded', "

#: Statement, what the hint says, and the statement that does what it says ('' where the hint holds it itself).
BAD_ARGUMENTS: list[tuple[str, str, str]] = [
    ("select fence.acquire('')", "such as 'report:1'", "select fence.acquire('report:1')"),
    ("select fence.acquire(null)", "such as 'report:1'", "select fence.acquire('report:1')"),
    (f"select fence.acquire('{LONG}')", "a hash of the long part", f"select fence.acquire(md5('{LONG}'))"),
    ("select fence.acquire('report:{id}')", "Render the template first", ""),
    (f"select fence.acquire('r', '30 s', '{LONG}')", "host:pid", "select fence.acquire('r', '30 s', 'host:1')"),
    ("select fence.acquire('r', '0 s')", "interval '30 seconds'", "select fence.acquire('r', interval '30 seconds')"),
    (
        "select fence.acquire('r', '2 days')",
        "interval '30 seconds'",
        "select fence.acquire('r', interval '30 seconds')",
    ),
    ("select fence.acquire('r', null)", "interval '30 seconds'", "select fence.acquire('r', interval '30 seconds')"),
    ("select fence.renew('r', null, 'x')", "that acquire returned", ""),
    ("select fence.present('r', 1, null)", "that acquire returned", ""),
    (
        "select fence.present_all('{a,b}', '{1}', '{x,y}')",
        "for each claim",
        "select fence.present_all('{}', '{}', '{}')",
    ),
    (
        "select fence.present_all('{}', '{}', '{}', '{1}')",
        "one sequence for each claim",
        "select fence.present_all('{}', '{}', '{}', '{}')",
    ),
    ("select fence.revoke('r', '')", "Say why", ""),
    ("select fence.revoke('r', null)", "Say why", ""),
    ("select fence.resource_name(null, '{}')", "For example", ""),
    ("select fence.resource_name('r:{id}', '[]')", "For example", ""),
    ("select fence.resource_name('r', null)", "For example", ""),
    (
        "select fence.resource_name('r:{id}', '{}')",
        "value for 'id'",
        "select fence.resource_name('r:{id}', '{\"id\": 1}')",
    ),
    ("select fence.resource_name('r:{id', '{}')", "{column}", "select fence.resource_name('r:{id}', '{\"id\": 1}')"),
    ("select fence.resource_name('r:}', '{}')", "twice", "select fence.resource_name('r:}}', '{}')"),
    (f"select fence.resource_name('{LONG}', '{{}}')", "Shorten", "select fence.resource_name('x', '{}')"),
    ("select fence.resource_for('public.bare', '{\"id\": 1}')", "Protect it first", ""),
    ("select fence.set_mode('public.bare', 'enforce')", "Protect it first", ""),
    ("select fence.unprotect('public.bare')", "Protect it first", ""),
    (
        "select fence.set_mode('public.guarded', null)",
        "Pass 'enforce'",
        "select fence.set_mode('public.guarded', 'enforce')",
    ),
    (G + "'{}')", '{"id": 1}', G + "'{\"id\": 1}')"),
    (
        G + "'{\"ID\": 1}')",
        "as in the catalog",
        G + "'{\"id\": 1}')",
    ),
    (
        G + "'{\"id\": null}')",
        "a value for every column",
        G + "'{\"id\": 1}')",
    ),
    (
        G + '\'{"body": "old"}\')',
        "one primary key",
        G + "'{\"id\": 1}')",
    ),
    (
        "select fence.resource_for('public.by_name', '{\"id\": 77}')",
        "key of an existing row",
        "select fence.resource_for('public.by_name', '{\"id\": 1}')",
    ),
    (
        f"select fence.fenced_update('public.guarded', '{{\"id\": 1}}', '{{\"doubled\": 1}}', {CLAIM})",
        "leave generated columns out",
        "claim",
    ),
    (T + "'')", "'nightly-billing'", T + "'nightly-billing')"),
    (T + "'r:{nope}')", "existing columns", T + "'r:{id}')"),
    (T + "'r:{amount}')", "Use a key of type", T + "'r:{id}')"),
    (T + "'r:{id}', 'loud')", "Pass p_mode => 'enforce'", T + "'r:{id}', p_mode => 'enforce')"),
    (T + "'r:{id}', p_writes => 'x')", "p_writes => 'many'", T + "'r:{id}', p_writes => 'many')"),
    (T + "'r:{id}', p_expiry => 'x')", "p_expiry => 'reject'", T + "'r:{id}', p_expiry => 'reject')"),
    (T + "'r:{id}', p_inserts => 'x')", "p_inserts => 'check'", T + "'r:{id}', p_inserts => 'check')"),
    (T + "'r:{id}', p_token_column => 'body')", "Add one", "token column"),
    (T + "'r:{doubled}', p_token_column => 'token')", "leave the token column out", T + "'r:{doubled}')"),
    ("select fence.protect('public.v', 'r')", "an ordinary table", T + "'r')"),
    ("select fence.protect(null, 'r')", "an ordinary table", T + "'r')"),
    ("select fence.protect('public.leaf', 'report:{id}')", "fence.protect('public.tree'", ""),
    ("select fence.protect('public.bare', 'r')", "Rename it", "trigger"),
    (
        "begin isolation level serializable; select fence.protect('public.t', 'r')",
        "begin isolation level read committed",
        "begin",
    ),
    ("select fence.protect('public.nameless', 'r:{name}')", "To see them", "null keys"),
    (T + "'r', p_covering => 'all')", "Hold that one", ""),
    (T + "'r:{id}', p_covering => 'r:x')", "the template cannot render", T + "'r:{id}', p_covering => 'all')"),
    (
        T + "'u:{id}', p_covering => 'r:1'), fence.protect('public.guarded', 'r:{id}', p_covering => 'all')",
        "another name",
        T + "'u:{id}', p_covering => 'every'), fence.protect('public.guarded', 'r:{id}', p_covering => 'all')",
    ),
    (
        "select fence.protect('public.computed', '{twice}')",
        "computed from",
        "select fence.protect('public.computed', '{id}')",
    ),
]


@pytest.mark.parametrize(("statement", "hint", "mended"), BAD_ARGUMENTS, ids=[s[7:70] for s, _, _ in BAD_ARGUMENTS])
def test_bad_arguments(db: Database, statement: str, hint: str, mended: str) -> None:
    for part in SETUP.split(";\n"):
        if part.strip():
            db.execute(part)
    for table, key in (("guarded", "r:{id}"), ("by_name", "r:{name}"), ("nameless", None)):
        columns = (
            "id int primary key, name text, body text default 'old', doubled int generated always as (id * 2) stored"
        )
        db.execute(f"create table public.{table} ({columns})")
        if key:
            protect(db, f"public.{table}", key)
    db.execute("alter table public.by_name disable trigger all")
    db.execute("insert into public.by_name (id, name) values (1, 'a')")
    db.execute("insert into public.nameless (id) values (1)")
    owner = db.connect("app_owner", autocommit=True)
    diag = refusal("LF010", owner, statement)
    owner.execute("rollback")
    assert hint in diag.message_hint, diag.message_hint
    if mended == "":
        found = commands(diag.message_hint)
        assert found, diag.message_hint
        if "public.bare" in found[0]:
            db.execute('drop trigger "0_fence_mine" on public.bare')
        owner.execute(found[0])
    elif mended == "trigger":
        owner.execute(commands(diag.message_hint + ";")[0].replace("...", "mine"))
        owner.execute(statement)
    elif mended == "begin":
        owner.execute(diag.message_hint)
        owner.execute("select fence.protect('public.t', 'r')")
        owner.execute("commit")
    elif mended == "token column":
        owner.execute(commands(diag.message_hint)[0])
        (named,) = re.findall(r"p_token_column => '\w+'", diag.message_hint)
        owner.execute(f"select fence.protect('public.t', 'r:{{id}}', {named})")
    elif mended == "null keys":
        assert owner.execute(commands(diag.message_hint)[0]).rowcount == 1
        owner.execute("update public.nameless set name = 'a' where name is null")
        owner.execute(statement)
    elif mended == "claim":
        with sqlstate("LF006"):
            owner.execute(statement.replace("doubled", "body").replace('"body": 1', '"body": "1"'))
    else:
        owner.execute(mended)


FLOOR = "9000000000000000000"
EXEMPT = "select fence.exempt('public.report', 'outsider', "

#: As BAD_ARGUMENTS, of what administrators call.
BAD_DECISIONS: list[tuple[str, str, str]] = [
    ("select fence.allow(null, 'report:*')", "Name a role", "select fence.allow('app', 'report:*')"),
    ("select fence.allow('app', '')", "", ""),
    (f"select fence.allow('app', '{LONG}')", "", ""),
    ("select fence.allow('app', 'r', -1)", "null for any number", "select fence.allow('app', 'r', null)"),
    ("select fence.allow('app', 'r', 0)", "", ""),
    (EXEMPT + "null, 'why')", "", ""),
    (EXEMPT + "'infinity', 'why')", "", ""),
    (EXEMPT + "now() + interval '1 hour', '')", "", ""),
    ("select fence.unexempt('public.report', 'outsider')", "See fence.audit()", "select * from fence.audit()"),
    (
        "select fence.exempt('public.report', null, now() + interval '1 hour', 'why')",
        "the role that the job logs in as",
        EXEMPT + "now() + interval '1 hour', 'why')",
    ),
    ("select fence.set_option('on_restart', 'never', 'why')", "", ""),
    ("select fence.set_option('nope', 'x', 'why')", "", ""),
    ("select fence.set_option('on_restart', 'confirm', '')", "", ""),
    ("select fence.prune(null)", "", ""),
    ("select fence.prune(interval '-1 day')", "", ""),
    ("select fence.raise_token_floor(null, 'why')", "the highest token", "select fence.raise_token_floor(1, 'why')"),
    ("select fence.raise_token_floor(0, 'why')", "the highest token", "select fence.raise_token_floor(1, 'why')"),
    ("select fence.raise_token_floor(1, '')", "", ""),
    (f"select fence.raise_token_floor({FLOOR}, 'why')", "If it is meant", ""),
    (f"select fence.confirm_lineage({FLOOR})", "Confirm first", ""),
    (
        "select * from fence._role_grants('app', 'boss')",
        "one of them",
        "select * from fence._role_grants('app', 'client')",
    ),
]


@pytest.mark.parametrize(("statement", "hint", "mended"), BAD_DECISIONS, ids=[s[7:70] for s, _, _ in BAD_DECISIONS])
def test_bad_decisions(db: Database, report: str, statement: str, hint: str, mended: str) -> None:
    protect(db, report, "report:{id}")
    admin = db.connect("app_owner" if "exempt" in statement else "fence_owner", autocommit=True)
    diag = refusal("LF010", admin, statement)
    assert hint in diag.message_hint, diag.message_hint
    found = [mended] if mended else commands(diag.message_hint)
    assert found, diag.message_hint
    for command in found:
        admin.execute(command)


def test_more_leases_than_allowed(db: Database) -> None:
    db.execute("select fence.allow('app', 'report:*', 1)", user="fence_owner")
    lease, app = acquire(db, "report:1"), db.connect("app", autocommit=True)
    diag = refusal("53400", app, "select * from fence.acquire('report:2')")
    (allow,) = commands(diag.message_hint)
    assert diag.message_hint.startswith("Release one, or")
    release(db, lease)
    lease = acquire(db, "report:2")
    refusal("53400", app, "select * from fence.acquire('report:1')")
    allow = allow.replace("<role>", "'app'").replace("<pattern>", "'report:*'").replace("<number>", "2")
    db.execute(allow, user="fence_owner")
    assert acquire(db, "report:1")


def test_a_lease_that_a_role_may_not_have(db: Database) -> None:
    db.execute("select fence.allow('app', 'report:*')", user="fence_owner")
    diag = refusal("42501", db.connect("app", autocommit=True), "select * from fence.acquire('other')")
    (allow,) = commands(diag.message_hint)
    db.execute(allow, user="fence_owner")
    assert acquire(db, "other")


@pytest.mark.parametrize("how", ["presented", "start-up"])
def test_acquiring_under_ones_own_claim(db: Database, lease: Lease, how: str) -> None:
    connection = db.connect("app", options=startup(lease) if how == "start-up" else "")
    if how == "presented":
        present(connection, lease)
    expire(db, "report:1")
    diag = refusal("LF010", connection, "select fence.acquire('report:1')")
    assert diag.message_hint.startswith("Commit or roll back first")
    assert diag.message_hint.endswith("on a connection without a start-up claim on 'report:1'.")
    assert acquire(connection if how == "presented" else db.connect("app"), "report:1")


@pytest.mark.parametrize("reason", ["held", "draining"])
def test_entering_what_somebody_else_has(db: Database, report: str, reason: str) -> None:
    """A draining one is closed by a request that commits: new ones of its holder would keep the job out for ever."""
    protect(db, report, "report:{id}", p_expiry="until_superseded")
    lease, writers = acquire(db, "report:1"), [db.connect("app"), db.connect("app")]
    job = db.connect("app", autocommit=True)
    if reason == "draining":
        present(writers[0], lease)
        expire(db, "report:1")
    diag = refusal("LF012", job, "select fence.enter('report:1')")
    found = commands(diag.message_hint)
    if reason == "held":
        release(db, lease)
    else:
        job.execute(found[0])
        with sqlstate("LF001"):
            present(writers[1], lease)
        writers[0].commit()
    assert job.execute(found[-1]).rowcount == 1


@pytest.mark.parametrize("reason", ["covering", "a rule with a number"])
def test_what_an_old_snapshot_is_not_granted(db: Database, report: str, reason: str) -> None:
    if reason == "covering":
        protect(db, report, "report:{id}", p_covering="all reports")
    else:
        db.execute("select fence.allow('app', 'all *', 1)")
    connection = db.connect("app", autocommit=True)
    connection.execute("begin isolation level repeatable read")
    diag = refusal("LF010", connection, "select fence.acquire('all reports')")
    connection.execute("rollback")
    connection.execute(diag.message_hint)
    assert acquire(connection, "all reports")


def test_what_is_not_available_is_left_out(db: Database, report: str) -> None:
    for parameter, value in (("p_mode", "observe"), ("p_inserts", "allow"), ("p_covering", "all")):
        statement = f"select fence.protect('public.report', 'report:{{id}}', {parameter} => '{value}')"
        try:
            db.execute(statement)
        except psycopg.DatabaseError as error:
            if error.sqlstate != "LF010" or not str(error.diag.message_hint).startswith(f"Leave {parameter} "):
                raise
    protect(db, report, "report:{id}")


def test_a_part_of_a_tree_is_unprotected_with_it(db: Database) -> None:
    db.execute("create table public.tree (id int, day int) partition by list (day)")
    db.execute("create table public.leaf partition of public.tree for values in (1)")
    protect(db, "public.tree", "row:{id}")
    diag = refusal("LF010", db.connect("app_owner"), "select fence.unprotect('public.leaf')")
    db.execute(commands(diag.message_hint)[0])
    assert db.execute("select from fence.protected_tables") == []


# -- LF011, LF012: the client's ----------------------------------------------------------------------------------------


def test_a_database_without_the_schema(empty_db: Database) -> None:
    from cli.command import CommandLine

    with pyfence.Fence(empty_db.url("fence_owner")) as fence:
        with pytest.raises(pyfence.SchemaMismatch) as refused:
            fence.acquire("report:1")
        assert refused.value.hint == "Run: pyfence migrate up"
        CommandLine(empty_db.url("fence_owner"))("migrate", "up")
        assert fence.acquire("report:1").token


def test_held_by_somebody_else(db: Database, lease: Lease) -> None:
    with pyfence.Fence(db.url("app")) as fence:
        with pytest.raises(pyfence.LeaseHeld) as refused:
            fence.acquire("report:1")
        assert "wait=SECONDS" in str(refused.value.hint)
        waiting = db.in_thread(fence.acquire, "report:1", wait=20)
        release(db, lease)
        assert waiting.result(20).token > lease.token


# -- LF013 -------------------------------------------------------------------------------------------------------------


def test_a_renamed_key_column(db: Database, report: str, lease: Lease) -> None:
    db.execute("alter table public.report rename column id to number")
    statement = "update public.report set body = 'new' where number = 1"
    connection = db.connect("app")
    present(connection, lease)
    diag = refusal("LF013", connection, statement)
    (command,) = commands(diag.message_hint)
    db.execute(command.replace("'...'", "'report:{number}'"))
    present(connection, lease)
    assert connection.execute(statement).rowcount == 1


def test_a_token_column_that_is_gone(db: Database, report: str, lease: Lease) -> None:
    protect(db, report, "report:{id}", p_token_column="token")
    db.execute("alter table public.report drop column token")
    connection = db.connect("app")
    present(connection, lease)
    diag = refusal("LF013", connection, UPDATE)
    Reader(db, user="app_owner").follow(diag.message_hint)
    present(connection, lease)
    assert connection.execute(UPDATE).rowcount == 1


def test_a_covering_resource_that_nothing_is_known_of(db: Database, report: str) -> None:
    protect(db, report, "report:{id}", p_covering="all reports", p_expiry="until_superseded")
    row = acquire(db, "report:1")
    db.execute("delete from fence._covering where resource = 'all reports'", user="fence_owner")
    connection = db.connect("app")
    present(connection, row)
    diag = refusal("LF013", connection, UPDATE)
    findings = db.execute("select code, remedy from fence.audit() where code = 'covering-lost'")
    assert [remedy in diag.message_hint for _, remedy in findings] == [True]
    Reader(db, user="app_owner").follow(diag.message_hint)
    present(connection, row)
    assert connection.execute(UPDATE).rowcount == 1
    connection.commit()
    assert db.execute("select code from fence.audit() where code = 'covering-lost'") == []
    assert acquire(db, "all reports").token > row.token


@pytest.mark.parametrize("kind", ["table", "view", "sequence"])
@pytest.mark.parametrize("name", ["fence_rows", "fence_old_rows"])
@pytest.mark.parametrize("writes", ["many", "once"])
def test_a_temporary_relation_in_the_way(db: Database, report: str, name: str, kind: str, writes: str) -> None:
    template = "report:{id}" if writes == "many" else "nightly"
    protect(db, report, template, p_writes=writes)
    lease = acquire(db, template.replace("{id}", "1"))
    connection = db.connect("app", autocommit=True)
    what = {"table": "table {} (id int)", "view": "view {} as select 1 as id", "sequence": "sequence {}"}[kind]
    connection.execute(f"create temporary {what.format(name)}")
    connection.execute("begin")
    present(connection, lease)
    if writes == "once" and name == "fence_old_rows":
        assert connection.execute(UPDATE).rowcount == 1, "not in the way there"
        return
    diag = refusal("LF013", connection, UPDATE)
    connection.execute("rollback")
    connection.execute(diag.message_hint)
    connection.execute("begin")
    present(connection, lease)
    assert connection.execute(UPDATE).rowcount == 1
    connection.execute("commit")


def test_a_row_whose_key_is_null_is_not_taken_by_giving_it_one(db: Database) -> None:
    """It belongs to no resource, so no claim covers it; whoever let it in has to mend it without the guard."""
    db.execute("create table public.named (id int, name text, body text)")
    protect(db, "public.named", "name:{name}")
    db.execute("alter table public.named disable trigger all")
    db.execute("insert into public.named values (1)")
    for (name,) in db.execute("select tgname::text from pg_trigger where tgrelid = 'public.named'::regclass"):
        db.execute(f'alter table public.named enable always trigger "{name}"')
    connection = db.connect("app")
    present(connection, acquire(db, "name:a"))
    with sqlstate("LF005"):
        connection.execute("update public.named set name = 'a'")
