"""Mode observe: every write passes; what enforce would refuse is noted, once for a table, a code and a transaction."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from guards.scene import (
    Lease,
    Scope,
    acquire,
    ask,
    contents,
    expire,
    forge,
    make_tables,
    present,
    protect,
    revoke,
    supersede,
)
from harness import SUPERUSER, Connection, Database, sqlstate

WRITE = "update public.t set body = 'new' where tenant = 'a'"
SERIALIZABLE = psycopg.IsolationLevel.SERIALIZABLE
READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED
#: The guard's own functions wait for a lock for five seconds.
IMPATIENT = "-c lock_timeout=1ms -c statement_timeout=4s"


@pytest.fixture
def t(db: Database, scope: Scope) -> str:
    make_tables(db)
    protect(db, "public.t", scope.template, p_mode="observe")
    return "public.t"


def noted(db: Database) -> list[Any]:
    return db.execute("select protected_table, code, role, count, exempt from fence.violations order by 1, 2, 3")


def mode(db: Database, mode: str, table: str = "public.t") -> None:
    db.execute("select fence.set_mode(%s, %s)", (table, mode))


@pytest.mark.parametrize(
    "statement",
    [
        WRITE,
        "delete from public.t",
        "insert into public.t select 9, 'b', 'us', 'x', 1",
        "truncate public.t",
        "merge into public.t using (select 1 as i) s on t.id = s.i when matched then delete",
        "insert into public.t values (1, 'z', 'eu') on conflict (id) do update set tenant = 'z'",
        "with w as (delete from public.t returning id) insert into public.log select id from w",
        "update public.parent set id = id + 10",
    ],
)
def test_a_job_without_claims_passes_and_is_noted(db: Database, t: str, statement: str) -> None:
    if statement.startswith("merge") and db.cluster.version < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    if "parent" in statement:
        db.execute("grant update on public.parent to outsider")
    before = contents(db, t)
    job = db.connect("outsider")
    for _ in range(3):
        job.execute("savepoint a")
        job.execute(statement)
        job.execute("rollback to savepoint a")
    assert contents(db, t) == before
    job.execute(statement)
    job.execute(WRITE)
    job.commit()
    assert contents(db, t) != before
    assert noted(db) == [("public.t", "LF004", "outsider", 1, False)]
    with sqlstate("LF004"):
        mode(db, "enforce")
        job.execute(WRITE)


def test_every_table_and_code_of_a_transaction_is_noted_once(db: Database) -> None:
    for table in ("a", "b"):
        db.execute(f"create table public.{table} (id int primary key)")
        protect(db, f"public.{table}", table, p_mode="observe")
    job = db.connect("app")
    lease = acquire(db, "a")
    for _ in range(2):
        job.execute("delete from public.a")
        job.execute("delete from public.b")
    present(job, lease)
    for _ in range(2):
        job.execute("delete from public.b")
    job.commit()
    assert noted(db) == [
        (f"public.{x}", code, "app", 1, False) for x, code in (("a", "LF004"), ("b", "LF004"), ("b", "LF005"))
    ]


def test_the_level_does_not_matter(db: Database, t: str, isolation: psycopg.IsolationLevel) -> None:
    job = db.connect("outsider", isolation=isolation)
    job.execute(WRITE)
    job.commit()
    assert noted(db) == [("public.t", "LF004", "outsider", 1, False)]


def test_every_code_is_noted_as_enforce_would_raise_it(db: Database, t: str, scope: Scope) -> None:
    """The same transactions under observe and then under enforce: the same codes."""

    def transactions(expect: bool) -> list[str]:
        leases = [acquire(db, name) for name in scope.mine]
        codes = []
        for spoil, code in (
            (lambda w: present(w, *leases), None),
            (lambda w: None, "LF004"),
            (lambda w: forge(w, Lease(scope.other, 1, "x")), "LF005"),
            (lambda w: forge(w, *(Lease(x.resource, x.token, "0" * 32) for x in leases)), "LF006"),
            (lambda w: (present(w, *leases), expire(db, leases[0].resource)), "LF002"),
            (lambda w: (present(w, *leases), revoke(db, leases[0].resource)), "LF001"),
        ):
            writer = db.connect("app")
            spoil(writer)
            if code is None or not expect:
                writer.execute(WRITE)
                writer.commit()
            else:
                with sqlstate(code):
                    writer.execute(WRITE)
                writer.rollback()
            if code:
                codes.append(code)
        for lease in leases:
            expire(db, lease.resource)
        return codes

    codes = transactions(expect=False)
    assert sorted(row[1] for row in noted(db)) == sorted(codes)
    mode(db, "enforce")
    assert transactions(expect=True) == codes


def test_an_observed_writer_locks_no_lease_and_waits_for_none(db: Database, t: str, scope: Scope) -> None:
    """While the rows of the lease, of the violations and of the authority are locked as hard as can be."""
    leases = [acquire(db, name) for name in scope.mine]
    owner = db.connect("fence_owner")
    writer = db.connect("app", options=IMPATIENT)
    forge(writer, *leases)
    owner.execute("select from fence._lease for update")
    writer.execute(WRITE)
    assert noted(db) == []
    owner.rollback()
    writer.commit()
    forge(writer, *leases)
    owner.execute("lock table fence._lease, fence._violation, fence._authority in access exclusive mode")
    writer.execute(WRITE)
    db.connect("outsider", autocommit=True, options=IMPATIENT).execute(WRITE.replace("'a'", "'b'"))
    owner.rollback()
    for lease in leases:
        expire(db, lease.resource)
    assert ask(db, leases[0].resource).granted, "an observed transaction must keep nobody out"
    writer.commit()


def test_an_observed_writer_does_not_wait_for_the_table_of_leases(db: Database) -> None:
    db.execute("create table public.s (id int primary key, body text, token bigint)")
    db.execute("insert into public.s values (1, 'old', 7)")
    protect(db, "public.s", "row:{id}", p_mode="observe", p_token_column="token")
    locking, writer = db.connect("fence_owner"), db.connect("outsider")
    locking.execute("lock table fence._lease in access exclusive mode")
    writer.execute("set statement_timeout = '2 s'")
    assert writer.execute("update public.s set body = 'new'").rowcount == 1


def test_legacy_writers_do_not_queue_behind_each_other(db: Database, t: str) -> None:
    one, two = (db.connect("outsider", options="-c lock_timeout=1ms") for _ in range(2))
    one.execute("update public.t set body = 'new' where id = 1")
    two.execute("update public.t set body = 'new' where id = 3")
    one.commit()
    two.commit()
    assert noted(db) == [("public.t", "LF004", "outsider", 2, False)]


def test_serializable_writers_do_not_meet_in_the_violations(db: Database, t: str) -> None:
    one, two = (db.connect("outsider", isolation=SERIALIZABLE) for _ in range(2))
    one.execute("update public.t set body = 'new' where id = 1")
    two.execute("update public.t set body = 'new' where id = 3")
    one.commit()
    two.commit()


@pytest.mark.parametrize(
    "damage",
    [
        "drop table fence._violation cascade",
        "drop function fence._observe(oid, text, text)",
        "drop function fence._refusal(text, text)",
        "drop function fence._claim_lines()",
        "alter table fence._violation add constraint never check (false)",
        "drop table fence._lease cascade",
    ],
)
def test_no_error_inside_the_guard_reaches_the_writer(db: Database, t: str, scope: Scope, damage: str) -> None:
    leases = [acquire(db, name) for name in scope.mine]
    writer, job = db.connect("app"), db.connect("outsider")
    forge(writer, *leases)
    db.execute(damage, user="fence_owner")
    writer.execute(WRITE)
    writer.commit()
    job.execute("delete from public.t")
    job.commit()
    assert contents(db, t) == []


def test_a_renamed_key_column_is_noted_and_harms_nobody(db: Database) -> None:
    make_tables(db)
    protect(db, "public.t", "row:{id}", p_mode="observe")
    lease = acquire(db, "row:1")
    db.execute("alter table public.t rename column id to number")
    writer = db.connect("app")
    present(writer, lease)
    writer.execute("delete from public.t")
    writer.commit()
    assert noted(db) == [("public.t", "LF013", "app", 1, False)]


def log_lines(db: Database) -> list[dict[str, Any]]:
    path = f"{db.cluster.server.base_dir}/{db.cluster.server.name}.log"
    with open(path, encoding="utf-8", errors="replace") as log:
        parts = [line.split("pyfence {", 1) for line in log]
    return [json.loads("{" + part[1]) for part in parts if len(part) == 2]


def test_every_noted_write_is_a_line_in_the_server_log(db: Database, t: str, scope: Scope) -> None:
    """The row shares its transaction's fate; the line does not. A write under its claim is neither."""
    holder = db.connect("app")
    present(holder, *(acquire(db, name) for name in scope.mine))
    holder.execute(WRITE)
    holder.commit()
    assert [line for line in log_lines(db) if line.get("pid") == holder.info.backend_pid] == []
    job = db.connect("outsider", application_name=f'nightly "{db.name}"\n')
    job.execute(WRITE)
    pid = job.info.backend_pid
    job.rollback()
    assert noted(db) == []
    (line,) = [line for line in log_lines(db) if line.get("pid") == pid]
    assert (line["event"], line["code"], line["table"], line["role"]) == ("passed", "LF004", "public.t", "outsider")
    mode(db, "enforce")
    with sqlstate("LF004"):
        job.execute(WRITE)
    assert [line["event"] for line in log_lines(db) if line.get("pid") == pid] == ["passed", "refused"]


def test_the_query_is_named_where_the_server_computes_it_and_the_owner_may_see_it(db: Database, t: str) -> None:
    db.execute(f"alter database {db.name} set compute_query_id = on", user=SUPERUSER)
    db.execute("grant pg_read_all_stats to fence_owner", user=SUPERUSER)
    try:
        db.connect("outsider", autocommit=True).execute(WRITE)
    finally:
        db.execute("revoke pg_read_all_stats from fence_owner", user=SUPERUSER)
    db.connect("outsider", autocommit=True).execute("delete from public.t")
    known = [
        row[0] is not None for row in db.execute("select query_id from fence._violation order by id", user=SUPERUSER)
    ]
    assert known == [True, False]


def test_one_subtransaction_with_an_id_for_each_code(db: Database, t: str) -> None:
    """A job of many statements must not fill its backend's cache of subtransactions (64)."""
    job = db.connect("outsider")
    count = "select xmin::text::bigint from public.t where id = 1"
    for _ in range(100):
        job.execute("update public.t set body = body where id = 1")
    ((last,),) = job.execute(count).fetchall()
    ((first,),) = job.execute("select pg_current_xact_id()::text::bigint").fetchall()
    assert last == first
    job.commit()
    ((after,),) = db.execute("select pg_current_xact_id()::text::bigint")
    assert after - first <= 20, "others may have taken ids meanwhile; one for each statement would be 100"


def test_switching_needs_no_restart_and_leaves_no_gap(db: Database, t: str) -> None:
    """The switch waits for an open writer; one that began before it and writes after it is refused at every level."""
    first = db.connect("outsider")
    old = db.connect("outsider", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    old.execute("select 1 from public.log")
    first.execute(WRITE)
    owner = db.connect("app_owner", isolation=READ_COMMITTED)
    switching = db.start_blocked(owner, "select fence.set_mode('public.t', 'enforce')", by=first)
    first.commit()
    switching.result(20)
    owner.commit()
    with sqlstate("LF004"):
        old.execute("delete from public.t where id = 3")


def test_rows_whose_key_is_null_keep_a_table_from_being_enforced(db: Database) -> None:
    """Observed, they come in and are noted; enforced, nobody could write them."""
    db.execute("create table public.n (id int, body text)")
    protect(db, "public.n", "row:{id}", p_mode="observe")
    db.execute("insert into public.n values (null, 'new')", user="outsider")
    with sqlstate("LF010") as refused:
        db.execute("select fence.set_mode('public.n', 'enforce')")
    assert db.execute("select mode from fence.protected_tables where table_name = 'n'") == [("observe",)]
    assert "null" in f"{refused.diag.message_primary} {refused.diag.message_detail}"
    db.execute("delete from public.n", user="outsider")
    db.execute("select fence.set_mode('public.n', 'enforce')")


def test_observe_stamps_the_token_of_a_claim(db: Database) -> None:
    db.execute("create table public.s (id int primary key, token bigint)")
    protect(db, "public.s", "row:{id}", p_mode="observe", p_token_column="token")
    lease = acquire(db, "row:1")
    writer = db.connect("app")
    writer.execute("insert into public.s values (2, 7)")
    present(writer, lease)
    writer.execute("insert into public.s values (1)")
    writer.commit()
    assert contents(db, "public.s") == [(1, lease.token), (2, 7)]


@pytest.mark.parametrize("route", ["root", "leaf"])
def test_a_partitioned_table_is_observed(db: Database, route: str) -> None:
    db.execute("create table public.p (id int, part int) partition by list (part)")
    db.execute("create table public.p1 partition of public.p for values in (1)")
    protect(db, "public.p", "row:{id}", p_mode="observe")
    db.execute("create table public.p2 partition of public.p for values in (2)")
    job = db.connect("outsider", autocommit=True)
    name = {"root": "public.p", "leaf": "public.p1"}[route]
    job.execute(f"insert into {name} values (1, 1)")
    job.execute("insert into public.p values (2, 2)")
    job.execute("update public.p set part = 3 - part")
    job.execute("delete from public.p2")
    job.execute("truncate public.p")
    assert {row[1] for row in noted(db)} == {"LF004"}
    assert contents(db, "public.p") == []


@pytest.mark.parametrize("late", [False, True])
def test_what_becomes_of_a_moved_row_where_it_arrives_is_noted(db: Database, late: bool) -> None:
    """MERGE shows a row that changes its partition in no transition table. The trigger may come after protect, too."""
    if db.cluster.version < 15:
        pytest.skip("PostgreSQL 14 has no MERGE: rows that it moves were not looked at")
    db.execute("create table public.p (id int, part int) partition by list (part)")
    db.execute("create table public.p1 partition of public.p for values in (1)")
    db.execute("create table public.p2 partition of public.p for values in (2)")
    db.execute("insert into public.p values (1, 1)")
    db.execute(
        "create function public.other() returns trigger language plpgsql"
        " as 'begin new.id := new.id + 100; return new; end'"
    )
    trigger = "create trigger a before insert on public.p2 for each row execute function public.other()"
    if not late:
        db.execute(trigger)
    protect(db, "public.p", "row:{id}", p_mode="observe")
    if late:
        db.execute(trigger)
    writer = db.connect("app")
    present(writer, acquire(db, "row:1"))
    move = "merge into public.p using (select 1 as i) s on p.id = s.i when matched then update set part = 2"
    writer.execute(move)
    writer.commit()
    assert contents(db, "public.p") == [(101, 2)]
    assert noted(db) == [("public.p2", "LF005", "app", 1, False)]


def test_the_doctor_says_that_a_table_is_only_observed(db: Database, t: str) -> None:
    assert ("warning", "table-observed", "public.t") in db.execute("select severity, code, object from fence.audit()")
    ((remedy,),) = db.execute("select remedy from fence.audit() where code = 'table-observed'")
    db.execute(remedy)
    assert db.execute("select 1 from fence.audit() where code = 'table-observed'") == []


def exempt(db: Database, role: str, until: str = "1 h", reason: str = "being changed") -> None:
    db.execute("select fence.exempt('public.t', %s, now() + %s::interval, %s)", (role, until, reason))


def test_an_exempt_role_is_observed_and_others_are_refused(
    db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel
) -> None:
    mode(db, "enforce")
    exempt(db, "outsider")
    job = db.connect("outsider", isolation=isolation)
    job.execute(WRITE)
    job.execute("truncate public.t")
    job.commit()
    assert noted(db) == [("public.t", "LF004", "outsider", 1, True)]
    with sqlstate("LF004"):
        db.connect("app").execute(WRITE)
    stale = [acquire(db, name) for name in scope.mine]
    supersede(db, stale[0])
    forge(job, *stale)
    job.execute("insert into public.t values (1, 'a', 'eu')")
    job.commit()
    assert {row[1] for row in noted(db)} == {"LF001", "LF004"}


def test_an_exempt_role_passes_with_a_temporary_relation_in_the_way(db: Database) -> None:
    make_tables(db)
    protect(db, "public.t", "nightly", p_writes="once")
    exempt(db, "outsider")
    job = db.connect("outsider")
    job.execute("create temporary table fence_rows (id int)")
    assert job.execute(WRITE).rowcount == 2


def test_set_role_and_security_definer_exempt_nobody(db: Database, t: str) -> None:
    """session_user counts: a role that may become the exempt one is not exempt."""
    mode(db, "enforce")
    exempt(db, "outsider")
    root = db.connect("postgres")
    root.execute("set role outsider")
    with sqlstate("LF004"):
        root.execute(WRITE)


def test_an_exemption_ends_by_itself(db: Database, t: str) -> None:
    mode(db, "enforce")
    exempt(db, "outsider")
    db.connect("outsider", autocommit=True).execute(WRITE)
    db.execute("update fence._exemption set until = clock_timestamp()", user="fence_owner")
    with sqlstate("LF004"):
        db.connect("outsider").execute(WRITE)
    assert db.execute("select 1 from fence.audit() where code = 'role-exempt'") == []


def test_unexempt_waits_for_open_writers_and_then_none_passes(db: Database, t: str) -> None:
    mode(db, "enforce")
    exempt(db, "outsider")
    job = db.connect("outsider", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    job.execute(WRITE)
    owner: Connection = db.connect("app_owner", isolation=READ_COMMITTED)
    ending = db.start_blocked(owner, "select fence.unexempt('public.t', 'outsider')", by=job)
    job.commit()
    ending.result(20)
    owner.commit()
    with sqlstate("LF004"):
        job.execute(WRITE)
    with sqlstate("LF010"):
        db.execute("select fence.unexempt('public.t', 'outsider')")
    events = [row[0] for row in db.execute("select event from fence.history where event like 'exempt%' order by id")]
    assert events == ["exempted", "exemption ended"]


def test_an_exemption_meets_an_unprotect(db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel) -> None:
    """Whichever comes first: none is left for a guard that is gone."""
    exempting, other = db.connect("app_owner", isolation=isolation), db.connect("app_owner")
    ask = "select fence.exempt('public.t', 'outsider', now() + interval '1 h', 'x')"
    exempting.execute("select 1")
    if isolation != READ_COMMITTED:  # it could be from a guard that the table has no longer
        with sqlstate("LF010"):
            exempting.execute(ask)
        exempting.rollback()
        exempting.isolation_level = READ_COMMITTED
        exempting.execute("select 1")
    other.execute("select fence.unprotect('public.t')")
    waiting = db.start_blocked(exempting, ask, by=other)
    other.commit()
    with sqlstate("LF010"):
        waiting.result(10)
    exempting.rollback()
    protect(db, "public.t", scope.template)
    exempting.execute(ask)
    ending = db.start_blocked(other, "select fence.unprotect('public.t')", by=exempting)
    exempting.commit()
    ending.result(10)
    other.commit()
    assert db.execute("select from fence._exemption", user="fence_owner") == []


def test_the_doctor_lists_exemptions_with_their_end(db: Database, t: str) -> None:
    mode(db, "enforce")
    exempt(db, "outsider", reason="ticket 7")
    ((detail, remedy),) = db.execute("select detail, remedy from fence.audit() where code = 'role-exempt'")
    assert "outsider" in detail
    assert "ticket 7" in detail
    db.execute(remedy)
    assert db.execute("select 1 from fence.audit() where code = 'role-exempt'") == []


@pytest.mark.parametrize(
    ("until", "reason"),
    [(None, "x"), ("infinity", "x"), ("2020-01-01", "x"), ("2120-01-01", ""), ("2120-01-01", None)],
)
def test_an_exemption_needs_an_end_and_a_reason(db: Database, t: str, until: str | None, reason: str | None) -> None:
    with sqlstate("LF010"):
        db.execute("select fence.exempt('public.t', 'app', %s::timestamptz, %s)", (until, reason))
    with sqlstate("LF010"):
        db.execute("select fence.exempt('public.parent', 'app', now() + interval '1 h', 'x')")
    with sqlstate("LF010"):
        db.execute("select fence.exempt('public.t', null, now() + interval '1 h', 'x')")


def test_an_unprotected_table_takes_its_exemptions_along(db: Database, t: str, scope: Scope) -> None:
    exempt(db, "outsider")
    db.execute("select fence.unprotect('public.t')")
    protect(db, "public.t", scope.template)
    with sqlstate("LF004"):
        db.connect("outsider").execute(WRITE)


def test_prune_forgets_what_is_old_and_never_a_token(db: Database, t: str, scope: Scope) -> None:
    lease = acquire(db, scope.mine[0])
    db.connect("outsider", autocommit=True).execute(WRITE)
    db.execute("update fence._violation set at = at - interval '2 days'", user="fence_owner")
    assert db.execute("select fence.prune(interval '1 day')") == [(1,)]
    assert noted(db) == []
    assert db.execute("select fence.prune(interval '0')")[0][0] > 0
    assert db.execute("select token from fence.leases") == [(lease.token,)]
    for age in (None, "-1 day"):
        with sqlstate("LF010"):
            db.execute("select fence.prune(%s::interval)", (age,))


def test_prune_waits_for_no_writer_that_an_exemption_has_let_pass(db: Database, t: str) -> None:
    mode(db, "enforce")
    exempt(db, "outsider")
    writer, owner = db.connect("outsider"), db.connect("app_owner", autocommit=True)
    writer.execute(WRITE)
    db.execute("update fence._exemption set until = now() - interval '1 minute'", user="fence_owner")
    owner.execute("set statement_timeout = '5 s'")
    prune = "select fence.prune(interval '30 seconds')"
    assert owner.execute(prune).fetchall() == [(0,)]
    writer.commit()
    assert owner.execute(prune).fetchall() == [(1,)]


def test_an_exemption_is_of_the_whole_tree_and_so_given_by_its_owner(db: Database) -> None:
    """Whoever owns a partition alone lets nobody into the others, and ends no exemption there."""
    db.execute("create table public.p (id int, body text) partition by list (id)")
    for number in (1, 2):
        db.execute(f"create table public.p{number} partition of public.p for values in ({number})")
    protect(db, "public.p", "row:{id}")
    db.execute("alter table public.p2 owner to app", user=SUPERUSER)
    with db.connect(SUPERUSER, autocommit=True) as connection:
        connection.execute("grant execute on function fence.exempt, fence.unexempt to app")
    until = "now() + interval '1 hour'"
    with sqlstate("LF010") as refused:
        db.execute(f"select fence.exempt('public.p2', 'outsider', {until}, 'x')", user="app")
    db.execute(refused.diag.message_hint.partition("table: ")[2])
    with sqlstate("LF010"):
        db.execute("select fence.unexempt('public.p2', 'outsider')", user=SUPERUSER)
    assert db.execute("select count(*) from fence._exemption", user="fence_owner") == [(1,)]
