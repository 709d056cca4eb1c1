"""What a role can do that was let pass for a while, and wants more than that."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, contents, forge, present, protect, release
from harness import SUPERUSER, Connection, Database, sqlstate
from psycopg.types.json import Jsonb

HUGE = 9223372036854775807


@pytest.fixture
def exempt(db: Database) -> Connection:
    """A session of the exempt role, on a table whose writes are counted."""
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t values (1, 'old'), (2, 'old')")
    protect(db, "public.t", "row:{id}", p_writes="sequenced")
    db.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 hour', 'test')")
    return db.connect("outsider")


def sequenced(connection: Connection, lease: Lease, sequence: int) -> None:
    connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, sequence))


def test_it_does_not_use_up_the_holders_turn(db: Database, exempt: Connection) -> None:
    """A made-up claim with the holder's token, which any monitor sees: nothing of it is counted."""
    lease = acquire(db, "row:1")
    ((xact,),) = exempt.execute("select pg_current_xact_id()::text").fetchall()
    claim = f"{xact}\n{lease.resource.encode().hex()} {lease.token} wrong {HUGE}\n"
    exempt.execute("select set_config('fence.claims', %s, true)", (claim,))
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    exempt.commit()
    assert db.execute("select * from fence._accepted", user="fence_owner") == []
    holder = db.connect("app")
    sequenced(holder, lease, 1)
    assert holder.execute("update public.t set body = 'new' where id = 1").rowcount == 1
    holder.commit()
    assert contents(db, "public.t")[0] == (1, "new")
    noted = db.execute("select role, code, exempt from fence.violations", user="monitor")
    assert noted == [("outsider", "LF006", True)]


@pytest.mark.parametrize("token", ["0", "-1", "x", "99999999999999999999", ""])
def test_a_made_up_claim_of_any_form_is_noted_and_no_more(db: Database, exempt: Connection, token: str) -> None:
    ((xact,),) = exempt.execute("select pg_current_xact_id()::text").fetchall()
    exempt.execute("select set_config('fence.claims', %s, true)", (f"{xact}\n{b'row:1'.hex()} {token} secret x\n",))
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    exempt.commit()
    assert contents(db, "public.t")[0] == (1, "legacy")
    assert len(db.execute("select 1 from fence.violations", user="monitor")) == 1


def test_it_can_hold_up_a_takeover_and_is_seen(db: Database, exempt: Connection) -> None:
    """A made-up claim's lease is locked before it is judged; who may pass keeps that lock, and is seen in in_flight."""
    lease = acquire(db, "row:1")
    forge(exempt, Lease("row:1", 1, "wrong"))
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    release(db, lease)
    assert ask(db, "row:1").reason == "draining"
    pids = db.execute("select pid from fence.in_flight", user=SUPERUSER)
    assert pids == [(exempt.info.backend_pid,)]
    exempt.rollback()
    acquire(db, "row:1")


def test_it_passes_on_its_table_alone_and_is_no_holder(db: Database, exempt: Connection) -> None:
    db.execute("create table public.other (id int primary key)")
    protect(db, "public.other", "row:{id}")
    with sqlstate("LF004"):
        exempt.execute("insert into public.other values (1)")
    exempt.rollback()
    forge(exempt, Lease("row:1", HUGE, "wrong"))
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    for call in ("present", "renew", "release"):
        with sqlstate("42501"), exempt.transaction():
            exempt.execute(f"select fence.{call}('row:1', 1, 'x')")


def test_it_exempts_nobody_else(db: Database, exempt: Connection) -> None:
    for statement in (
        "select fence.exempt('public.t', 'outsider', now() + interval '1 year', 'more')",
        "insert into fence._exemption select guard, role, until + interval '1 year' from fence._exemption",
        "set session authorization app",
        "select fence.set_mode('public.t', 'observe')",
    ):
        with sqlstate("42501"), exempt.transaction():
            exempt.execute(statement)


def test_it_does_not_pass_with_a_snapshot_from_before_its_end(
    db: Database, exempt: Connection, isolation: psycopg.IsolationLevel
) -> None:
    """unexempt waits for the writers of the table; this one has not touched it yet."""
    writer = db.connect("outsider", isolation=isolation)
    writer.execute("select 1")
    db.execute("select fence.unexempt('public.t', 'outsider')")
    with sqlstate("LF004" if isolation == psycopg.IsolationLevel.READ_COMMITTED else "40001"):
        writer.execute("update public.t set body = 'legacy' where id = 1")
    writer.rollback()
    assert contents(db, "public.t") == [(1, "old"), (2, "old")]


def test_two_exempt_sessions_write_at_once(db: Database, exempt: Connection, isolation: psycopg.IsolationLevel) -> None:
    """And the exemption can be prolonged meanwhile."""
    second = db.connect("outsider", isolation=isolation)
    for number, session in enumerate((exempt, second), 1):
        session.execute("update public.t set body = 'legacy' where id = %s", (number,))
    db.execute("select fence.exempt('public.t', 'outsider', now() + interval '2 hours', 'test')")
    exempt.commit()
    second.commit()
    assert contents(db, "public.t") == [(1, "legacy"), (2, "legacy")]


def test_who_hides_his_own_violation(db: Database, exempt: Connection) -> None:
    """fence.noted says what this transaction has noted; whoever may pass can say so beforehand, and no line is logged.

    It harms nobody else and lets nothing pass that would not pass anyway: an exemption is trust.
    """
    ((xact, table),) = exempt.execute("select pg_current_xact_id()::text, 'public.t'::regclass::oid").fetchall()
    exempt.execute("select set_config('fence.noted', %s, true)", (f"{xact}\n{table} LF004\n",))
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    exempt.commit()
    assert db.execute("select * from fence.violations", user="monitor") == []
    exempt.execute("update public.t set body = 'legacy' where id = 1")
    exempt.commit()
    assert len(db.execute("select 1 from fence.violations", user="monitor")) == 1


def test_a_renamed_role_takes_neither_rules_nor_exemptions_along(db: Database) -> None:
    """They go by name, so that a dump carries them. Renaming needs CREATEROLE."""
    db.execute("create role batch_old login", user=SUPERUSER)
    try:
        db.execute("select fence.allow('batch_old', 'job:*')")
        for (statement,) in db.execute("select fence._role_grants('batch_old', 'client')", user="fence_owner"):
            db.execute(statement, user="fence_owner")
        with sqlstate("42501"):
            db.execute("select fence.acquire('x')", user="batch_old")
        db._by_user.pop("batch_old").close()
        db.execute("alter role batch_old rename to batch_new", user=SUPERUSER)
        assert db.execute("select granted from fence.acquire('x')", user="batch_new") == [(True,)]
        assert db.execute("select role from fence.allowances", user="monitor") == [("batch_old",)]
    finally:
        for name in ("batch_old", "batch_new"):
            if db.execute("select 1 from pg_roles where rolname = %s", (name,)):
                db.execute(f"drop owned by {name}", user=SUPERUSER)
                db.execute(f"drop role {name}", user=SUPERUSER)


@pytest.mark.parametrize("sequence", [3, None])
def test_an_exempt_holder_takes_no_number_back(db: Database, sequence: int | None) -> None:
    """What it writes out of turn passes, and is not remembered: the last number stays applied."""
    db.execute("create table public.s (id int primary key, n int)")
    db.execute("insert into public.s values (1, 0)")
    protect(db, "public.s", "row:{id}", p_writes="sequenced")
    lease = acquire(db, "row:1")

    def write(number: int | None) -> None:
        with db.connect("app") as connection:
            connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, number))
            connection.execute("update public.s set n = n + 1 where id = 1")

    write(10)
    db.execute("select fence.exempt('public.s', 'app', now() + interval '1 hour', 'test')")
    write(sequence)
    db.execute("select fence.unexempt('public.s', 'app')")
    with sqlstate("LF007"):
        write(10)
    assert contents(db, "public.s") == [(1, 2)]
    write(11)


# -- inserts that need no claim --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["", "off", "on"])
@pytest.mark.parametrize("route", ["update", "merge"])
def test_a_row_that_moves_is_no_insert_whatever_the_setting_says(db: Database, setting: str, route: str) -> None:
    """p_inserts allows new rows; fence.moving tells a moved one from a new one, and any role may SET it."""
    if route == "merge" and db.cluster.version < 15:
        pytest.skip("no MERGE before PostgreSQL 15")
    db.execute("create table public.p (id int, k int, body text) partition by range (k)")
    for number in (0, 10):
        db.execute(f"create table public.p{number} partition of public.p for values from ({number}) to ({number + 10})")
    db.execute("insert into public.p values (1, 1, 'old'), (2, 12, 'old')")
    protect(db, "public.p", "row:{id}", p_inserts="allow")
    thief = db.connect("app")
    thief.execute("select set_config('fence.moving', %s, false)", (setting,))
    thief.commit()
    present(thief, acquire(db, "row:1"))
    reset = f"set_config('fence.moving', '{setting}', true)"
    statement = {
        "update": f"update public.p set id = 2, k = 15, body = 'stolen' || {reset} where id = 1 returning {reset}",
        "merge": f"merge into public.p using (values (1)) v (id) on p.id = v.id"
        f" when matched then update set id = 2, k = 15, body = 'stolen' || {reset}",
    }[route]
    with sqlstate("LF005"):
        thief.execute(statement)
    thief.rollback()
    assert sorted(contents(db, "public.p")) == [(1, 1, "old"), (2, 12, "old")]


def test_a_move_stays_one_where_the_owners_trigger_runs_the_writers_code(db: Database) -> None:
    """A trigger without a search_path of its own calls what the writer's path names: there the mark is taken back."""
    if db.cluster.version < 15:
        pytest.skip("no MERGE before PostgreSQL 15")
    db.execute("create table public.p (id int, tenant text, k int, body text) partition by range (k)")
    for number in (0, 10):
        db.execute(f"create table public.p{number} partition of public.p for values from ({number}) to ({number + 10})")
    body = "begin new.tenant := lower(new.tenant); return new; end"
    db.execute(f"create function public.norm() returns trigger language plpgsql as $${body}$$")
    db.execute("create trigger norm before insert or update on public.p for each row execute function public.norm()")
    db.execute("insert into public.p values (1, 'a', 1, 'old'), (2, 'b', 12, 'old')")
    protect(db, "public.p", "tenant:{tenant}")
    lease = acquire(db, "tenant:a")
    db.execute("create schema app authorization app", user=SUPERUSER)
    db.execute(
        """
        create function app.lower(text) returns text language plpgsql as $$
        begin
          if coalesce(current_setting('fence.moving', true), '') <> '' then
            perform set_config('fence.moving', '', true);
            return 'b';
          end if;
          return pg_catalog.lower($1);
        end $$
        """,
        user="app",
    )
    thief = db.connect("app", search_path="app,pg_catalog")
    steal = "merge into public.p using (values (1)) v (id) on p.id = v.id when matched then update set k = 15"
    present(thief, lease)
    with sqlstate("LF005"):
        thief.execute(steal)
    thief.rollback()
    honest = db.connect("app")
    present(honest, lease)
    assert honest.execute(steal).rowcount == 1
    honest.rollback()
    assert sorted(contents(db, "public.p")) == [(1, "a", 1, "old"), (2, "b", 12, "old")]


BETWEEN = {
    "a trigger": "create trigger gone before delete on public.p for each row execute function public.gone()",
    "a check": "alter table public.p add check (public.passes(body))",
    "a policy": "alter table public.p enable row level security;"
    " create policy passing on public.p using (true) with check (public.passes(body))",
    "a generated column": "alter table public.p add made boolean generated always as (public.passes(body)) stored",
    "an index": "create index on public.p (public.passes(body))",
    "a temporary view": "",
}


@pytest.mark.parametrize("what", list(BETWEEN))
def test_a_move_stays_one_whatever_runs_between_leaving_and_arriving(db: Database, what: str) -> None:
    """The trigger that gives the key its form has a search_path; what else the owner has there has none."""
    if db.cluster.version < 15:
        pytest.skip("no MERGE before PostgreSQL 15")
    db.execute("create table public.p (id int, tenant text, k int, body text) partition by range (k)")
    for number in (0, 10):
        db.execute(f"create table public.p{number} partition of public.p for values from ({number}) to ({number + 10})")
    db.execute("create table public.settings as select 1 as n")
    db.execute("create schema hooks authorization app_owner", user=SUPERUSER)
    db.execute("grant usage on schema hooks to public")
    db.execute("create function hooks.hook() returns int language sql as 'select 1'")
    db.execute(f"alter database {db.name} set search_path = hooks", user=SUPERUSER)
    owner = db.connect("app_owner", autocommit=True, search_path="hooks")
    for statement in (
        "create function public.passes(text) returns boolean language plpgsql immutable as"
        " 'begin perform hook(); return true; end'",
        "create function public.gone() returns trigger language plpgsql as 'begin perform hook(); return old; end'",
        "create function public.norm() returns trigger language plpgsql set search_path = pg_catalog, public as"
        " 'begin perform n from settings; new.tenant := lower(new.tenant); return new; end'",
        "create trigger norm before insert on public.p for each row execute function public.norm()",
        BETWEEN[what],
        "insert into public.p values (1, 'a', 1, 'old'), (2, 'b', 12, 'old')",
    ):
        if statement:
            owner.execute(statement)
    protect(db, "public.p", "tenant:{tenant}")
    a, b, other = acquire(db, "tenant:a"), acquire(db, "tenant:b"), acquire(db, "tenant:B")
    db.execute("create schema app authorization app", user=SUPERUSER)
    hook = "returns int language sql as $$ select length(set_config('fence.moving', '', true)) $$"
    thief = db.connect("app", search_path="app,pg_catalog")
    thief.execute(f"create function {'pg_temp' if what == 'a temporary view' else 'app'}.hook() {hook}")
    if what == "a temporary view":
        thief.execute("create view pg_temp.settings as select pg_temp.hook() as n")
    thief.commit()
    steal = (
        "merge into public.p using (values (1)) v (id) on p.id = v.id when matched then update set k = 15, tenant = 'B'"
    )
    present(thief, a, other)
    with sqlstate("LF005"):
        thief.execute(steal)
    thief.rollback()
    present(thief, a, other, b)
    assert thief.execute(steal).rowcount == 1


def test_the_token_column_of_a_row_inserted_without_a_claim_is_what_the_writer_says(db: Database) -> None:
    """Nothing else could be stamped on it; so trust the column only where inserts are checked."""
    db.execute("create table public.s (id int primary key, body text, token bigint)")
    protect(db, "public.s", "row:{id}", p_inserts="allow", p_token_column="token")
    db.execute("insert into public.s values (1, 'x', %s)", (HUGE,), user="outsider")
    assert db.execute("select token from public.s") == [(HUGE,)]
    lease = acquire(db, "row:1")
    parameters: tuple[Any, ...] = (Jsonb({"id": 1}), Jsonb({"token": 5}), *lease.parameters)
    db.execute("select fence.fenced_update('public.s', %s, %s, %s, %s, %s)", parameters, user="app")
    assert db.execute("select token from public.s") == [(lease.token,)]
