"""p_inserts => 'allow' and p_uncatchable."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import acquire, check_refusal, contents, make_tables, present, protect
from harness import Database, sqlstate

import pyfence
from pyfence import errors


@pytest.fixture(params=["row:{id}", "nightly"])
def template(request: pytest.FixtureRequest, db: Database) -> str:
    make_tables(db)
    return str(request.param)


@pytest.mark.parametrize("user", ["app", "outsider"])
def test_inserts_need_no_claim_where_they_are_allowed(
    db: Database, template: str, user: str, isolation: psycopg.IsolationLevel
) -> None:
    protect(db, "public.t", template, p_inserts="allow")
    writer = db.connect(user, isolation=isolation)
    assert writer.execute("insert into public.t values (7, 'a', 'eu') returning id").fetchall() == [(7,)]
    with writer.cursor().copy("copy public.t (id, tenant) from stdin") as copy:
        copy.write_row((8, "b"))
    writer.execute("insert into public.t values (7) on conflict do nothing")
    writer.commit()
    for statement in (
        "insert into public.t values (7) on conflict (id) do update set tenant = 'stolen'",
        "update public.t set tenant = 'stolen' where id = 7",
        "delete from public.t where id = 7",
        "truncate public.t",
    ):
        with sqlstate("LF004"):
            writer.execute(statement)
        writer.rollback()
    assert [row[0] for row in contents(db, "public.t")] == [1, 2, 3, 7, 8]


def test_the_update_arm_of_an_upsert_needs_the_rows_claim(db: Database, template: str) -> None:
    protect(db, "public.t", "row:{id}", p_inserts="allow")
    upsert = "insert into public.t values (%s, 'x') on conflict (id) do update set tenant = 'x'"
    writer = db.connect("app")
    present(writer, acquire(db, "row:1"))
    writer.execute(upsert, (1,))
    writer.execute(upsert, (99,))
    writer.commit()
    present(writer, acquire(db, "row:99"))
    with sqlstate("LF005"):
        writer.execute(upsert, (2,))


def test_allowed_inserts_into_partitions(db: Database) -> None:
    db.execute("create table public.p (id int, part int) partition by list (part)")
    db.execute("create table public.p1 partition of public.p for values in (1)")
    protect(db, "public.p", "row:{id}", p_inserts="allow")
    db.execute("create table public.p2 partition of public.p for values in (2)")
    writer = db.connect("outsider", autocommit=True)
    for part, table in ((1, "p"), (1, "p1"), (2, "p"), (2, "p2")):
        writer.execute(f"insert into public.{table} values ({part}, {part})")
    for table in ("p", "p1", "p2"):
        for statement in (f"update public.{table} set id = 9", f"delete from public.{table}"):
            with sqlstate("LF004"):
                writer.execute(statement)
    assert db.execute("select severity from fence.audit() where severity = 'error'") == []
    protect(db, "public.p", "row:{id}", p_inserts="check")
    for table in ("p", "p1", "p2"):
        with sqlstate("LF004"):
            writer.execute(f"insert into public.{table} values (1, {2 if table == 'p2' else 1})")


def test_a_database_made_key_is_inserted_first_and_guarded_afterwards(db: Database) -> None:
    """The way of an ORM: the key is not known before the row is there."""
    db.execute("create table public.job (id bigint generated always as identity primary key, state text)")
    protect(db, "public.job", "job:{id}", p_inserts="allow")
    ((key,),) = db.execute("insert into public.job (state) values ('new') returning id", user="app")
    writer = db.connect("app")
    present(writer, acquire(db, f"job:{key}"))
    writer.execute("update public.job set state = 'done' where id = %s", (key,))
    writer.commit()
    assert contents(db, "public.job") == [(1, "done")]


SWALLOW = """
create function public.careless() returns text language plpgsql as $$
begin
  update public.t set body = 'lost' where id = 1;
  return 'done';
exception when others then
  return 'swallowed';
end $$
"""


def test_a_careless_job_cannot_swallow_the_refusal(db: Database, template: str) -> None:
    db.execute(SWALLOW)
    protect(db, "public.t", template)
    job = db.connect("outsider", autocommit=True)
    assert job.execute("select public.careless()").fetchall() == [("swallowed",)]
    protect(db, "public.t", template, p_uncatchable=True)
    with sqlstate("P0004") as refused:
        job.execute("select public.careless()")
    assert refused.diag.constraint_name == "LF004"
    assert (refused.diag.schema_name, refused.diag.table_name) == ("public", "t")
    assert "fence.present(" in refused.diag.message_hint
    protect(db, "public.t", template, p_uncatchable=False)
    with sqlstate("LF004") as refused:
        job.execute("update public.t set body = 'lost' where id = 1")
    check_refusal(refused.diag, table="t")


def test_the_client_reads_the_code_all_the_same(db: Database, template: str) -> None:
    protect(db, "public.t", template, p_uncatchable=True)
    with pyfence.Fence(db.url("app")) as fence, fence.lease("another") as lease:
        with pytest.raises(errors.WrongResource) as caught, db.connect("app") as connection:
            pyfence.fenced_update(connection, "public.t", {"id": 1}, {"body": "x"}, lease)
        assert isinstance(caught.value.__cause__, psycopg.Error)


def test_observe_and_uncatchable_do_not_meet(db: Database, template: str) -> None:
    protect(db, "public.t", template, p_uncatchable=True, p_mode="observe")
    job = db.connect("outsider", autocommit=True)
    job.execute("update public.t set body = 'x'")
    db.execute("alter table public.t rename column id to number")
    job.execute("update public.t set body = 'y'")


@pytest.mark.parametrize("options", [{"p_covering": "all"}, {"p_covering": "row:{id}"}], ids=str)
def test_a_table_scope_has_nothing_to_cover(db: Database, template: str, options: dict[str, Any]) -> None:
    with sqlstate("LF010"):
        protect(db, "public.t", "nightly", **options)
