"""What PostgreSQL lets writers do on some of its versions only, guarded where it exists (docs/dba/versions.md)."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import acquire, present, protect
from harness import SUPERUSER, Database, sqlstate
from trees.forest import attempt

#: Statements that change row 1, and the first version that has them. An older one answers with a syntax error.
MERGE = "merge into public.{} w using (values (1)) v (id) on w.id = v.id when matched then update set body = 'new'"
STATEMENTS = {
    "merge": (15, MERGE),
    "merge returning": (17, f"{MERGE} returning w.id"),
    "merge by source": (
        17,
        "merge into public.{} w using (values (2)) v (id) on w.id = v.id"
        " when not matched by source then update set body = 'new'",
    ),
}


@pytest.fixture
def w(db: Database) -> str:
    db.execute("create table public.w (id int primary key, tenant text, body text)")
    db.execute("insert into public.w values (1, 'a', 'old')")
    db.execute("create view public.v as select id, tenant, body from public.w")
    db.execute("grant select, insert, update, delete on public.v to app")
    protect(db, "public.w", "tenant:{tenant}")
    return "w"


@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_merge_is_guarded_where_there_is_one(db: Database, w: str, kind: str) -> None:
    since, statement = STATEMENTS[kind]
    connection = db.connect("app")
    if db.cluster.version < since:
        assert attempt(connection, statement.format(w)) == "42601"
        return
    assert attempt(connection, statement.format(w)) == "LF004"
    assert attempt(connection, statement.format(w), acquire(db, "tenant:b")) == "LF005"
    assert attempt(connection, statement.format(w), acquire(db, "tenant:a")) == 1


def test_a_merge_into_a_view_is_guarded_by_its_table(db: Database, w: str) -> None:
    connection, lease = db.connect("app"), acquire(db, "tenant:a")
    statement = MERGE.format("v")
    if db.cluster.version < 17:
        expected = ("42601",) * 2 if db.cluster.version < 15 else ("0A000",) * 2
    else:
        expected = ("LF004", 1)
    assert (attempt(connection, statement), attempt(connection, statement, lease)) == expected


def test_a_view_with_the_rights_of_its_reader_is_guarded_by_its_table(db: Database, w: str) -> None:
    statement = "alter view public.v set (security_invoker = true)"
    if db.cluster.version < 15:
        with sqlstate("22023"):
            db.execute(statement)
        return
    db.execute(statement)
    connection = db.connect("app")
    update = "update public.v set body = 'new' where id = 1"
    assert attempt(connection, update) == "LF004"
    assert attempt(connection, update, acquire(db, "tenant:b")) == "LF005"
    assert attempt(connection, update, acquire(db, "tenant:a")) == 1


def test_who_was_granted_replica_role_is_refused_in_it(db: Database, w: str) -> None:
    grant = "grant set on parameter session_replication_role to app"
    if db.cluster.version < 15:
        with sqlstate("42601"):
            db.execute(grant, user=SUPERUSER)
        with sqlstate("42501"):
            db.execute("set session_replication_role = replica", user="app")
        return
    db.execute(grant, user=SUPERUSER)
    try:
        connection = db.connect("app", options="-c session_replication_role=replica")
        update = "update public.w set body = 'new' where id = 1"
        assert attempt(connection, update) == "LF004"
        assert attempt(connection, update, acquire(db, "tenant:b")) == "LF005"
        assert attempt(connection, update, acquire(db, "tenant:a")) == 1
    finally:
        db.execute("revoke set on parameter session_replication_role from app", user=SUPERUSER)


def test_who_may_maintain_a_table_locks_it_and_writes_nothing(db: Database, w: str) -> None:
    grant = "grant maintain on public.w to outsider"
    db.execute("revoke all on public.w from outsider")
    if db.cluster.version < 17:
        with sqlstate("42601"):
            db.execute(grant)
        return
    db.execute(grant)
    keeper = db.connect("outsider")
    for statement in (
        "update public.w set body = 'new'",
        "truncate public.w",
        'drop trigger "0_fence_claim" on public.w',
    ):
        assert attempt(keeper, statement) == "42501"
    keeper.execute("lock table public.w in access exclusive mode")
    writer, lease = db.connect("app"), acquire(db, "tenant:a")
    waiting = db.start_blocked(writer, "select 1 from public.w", by=keeper)
    keeper.rollback()
    assert waiting.result(10).fetchall() == [(1,)]
    writer.rollback()
    assert attempt(writer, "update public.w set body = 'new'", lease) == 1


# -- minor releases ---------------------------------------------------------------------------------------------------

BESIDE = {
    "update": "with u as (update public.t set body = 'x' where id = 3 returning 1) merge into public.t "
    "using (values (1)) s (i) on id = i when matched then update set body = 'stolen'",
    "delete": "with u as (delete from public.t where id = 3 returning 1) merge into public.t "
    "using (values (1)) s (i) on id = i when matched then delete",
    "insert": "with u as (insert into public.t values (8, 'b') returning 1) merge into public.t "
    "using (values (9)) s (i) on id = i when not matched then insert values (9, 'a')",
    "cascade": "merge into public.t using (values (1)) s (i) on id = i when matched then update set id = 9",
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_merge_beside_another_write_is_checked_or_the_doctor_warns(
    db: Database, beside: str, partitioned: bool
) -> None:
    if db.cluster.version < 15:
        pytest.skip("no MERGE before PostgreSQL 15: nothing to check")
    db.execute(
        "create table public.t (id int primary key, tenant text, body text, "
        "up int references public.t on update cascade)" + (" partition by range (id)" if partitioned else "")
    )
    if partitioned:
        db.execute("create table public.t1 partition of public.t default")
    db.execute("insert into public.t values (1, 'a', 'old', null), (2, 'a', 'old', null), (3, 'b', 'old', 1)")
    protect(db, "public.t", "tenant:{tenant}")
    writer = db.connect("app")
    present(writer, acquire(db, "tenant:b"))
    found = db.execute("select severity from fence.audit() where code = 'server-too-old'")
    ((faulty,),) = db.execute(
        "select fence._has_merge_fault(current_setting('server_version_num')::int)", user="fence_owner"
    )
    assert found == ([("error",)] if faulty else [])
    try:
        writer.execute(BESIDE[beside])
    except psycopg.Error as error:
        code = error.sqlstate
    else:
        code = "accepted"
    assert code == "LF005" or faulty, "a row of another tenant was written"


def test_releases_with_the_fault(db: Database) -> None:
    versions = [140022, 150015, 150016, 160011, 160012, 170007, 170008, 180001, 180002, 190000]
    found = db.execute(
        "select v from unnest(%s::int[]) v where fence._has_merge_fault(v)", (versions,), user="fence_owner"
    )
    assert [version for (version,) in found] == [150015, 160011, 170007, 180001]


def test_a_table_scope_guard_that_counts_nothing_does_not_need_a_newer_release(db: Database) -> None:
    """It looks before the statement."""
    db.execute("create table public.t (id int primary key)")
    protect(db, "public.t", "nightly")
    faulty = (
        "function fence._has_merge_fault(p_version integer) returns boolean language sql immutable as 'select true'"
    )
    db.execute(f"create or replace {faulty}", user="fence_owner")
    found = "select code from fence.audit() where code = 'server-too-old'"
    assert db.execute(found) == []
    protect(db, "public.t", "nightly", p_writes="once")
    assert db.execute(found) == [("server-too-old",)]
