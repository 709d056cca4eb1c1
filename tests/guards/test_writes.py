"""p_writes: one transaction a token, or sequences that only grow; remembered where the write is."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, check_refusal, contents, protect, supersede
from harness import Connection, Database, sqlstate

SCOPES = {"table": "nightly", "row": "row:{id}"}
NAMES = {"table": "nightly", "row": "row:1"}
UPDATE = "update public.t set body = %s where id = 1"


@pytest.fixture(params=list(SCOPES))
def scope(request: pytest.FixtureRequest, db: Database) -> str:
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t values (1, 'old'), (2, 'old')")
    return str(request.param)


def show(connection: Connection, lease: Lease, sequence: int | None = None) -> None:
    connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, sequence))


def write(connection: Connection, lease: Lease, text: str, sequence: int | None = None) -> None:
    show(connection, lease, sequence)
    connection.execute(UPDATE, (text,))
    connection.commit()


def body(db: Database) -> str:
    return str(contents(db, "public.t")[0][1])


def test_once_is_one_transaction_a_token(db: Database, scope: str, isolation: psycopg.IsolationLevel) -> None:
    protect(db, "public.t", SCOPES[scope], p_writes="once")
    lease, writer = acquire(db, NAMES[scope]), db.connect("app", isolation=isolation)
    show(writer, lease)
    writer.execute(UPDATE, ("first",))
    writer.execute(UPDATE, ("second",))
    writer.commit()
    show(writer, lease)
    with sqlstate("LF007") as refused:
        writer.execute(UPDATE, ("again",))
    check_refusal(refused.diag, table="t", secrets=[lease.secret])
    writer.rollback()
    assert body(db) == "second"
    write(writer, supersede(db, lease), "next")
    assert body(db) == "next"


def test_what_was_rolled_back_has_consumed_nothing(db: Database, scope: str, isolation: psycopg.IsolationLevel) -> None:
    protect(db, "public.t", SCOPES[scope], p_writes="once")
    lease, writer = acquire(db, NAMES[scope]), db.connect("app", isolation=isolation)
    show(writer, lease)
    writer.execute(UPDATE, ("lost",))
    writer.rollback()
    show(writer, lease)
    writer.execute("savepoint a")
    writer.execute(UPDATE, ("lost",))
    writer.execute("rollback to savepoint a")
    writer.commit()
    write(writer, lease, "kept")
    assert body(db) == "kept"


def test_presenting_or_touching_no_row_consumes_nothing(db: Database, scope: str) -> None:
    protect(db, "public.t", SCOPES[scope], p_writes="once")
    lease, writer = acquire(db, NAMES[scope]), db.connect("app")
    for nothing in ("select 1", "update public.t set body = 'x' where id = 99", "delete from public.t where false"):
        show(writer, lease)
        writer.execute(nothing)
        writer.commit()
    write(writer, lease, "first")
    assert body(db) == "first"


def test_sequences_only_grow(db: Database, scope: str, isolation: psycopg.IsolationLevel) -> None:
    protect(db, "public.t", SCOPES[scope], p_writes="sequenced")
    lease, writer = acquire(db, NAMES[scope]), db.connect("app", isolation=isolation)
    for sequence, text, code in (
        (None, "x", "LF008"),
        (5, "five", None),
        (5, "x", "LF007"),
        (4, "x", "LF008"),
        (2**63 - 1, "last", None),
        (6, "x", "LF008"),
    ):
        if code is None:
            write(writer, lease, text, sequence)
            continue
        before = contents(db, "public.t")
        with sqlstate(code) as refused:
            write(writer, lease, text, sequence)
        check_refusal(refused.diag, table="t", secrets=[lease.secret])
        writer.rollback()
        assert contents(db, "public.t") == before
    write(writer, supersede(db, lease), "newer", 1)
    assert body(db) == "newer"


def test_two_who_write_once_at_the_same_moment(db: Database, scope: str) -> None:
    """The second waits for the first, and then knows."""
    protect(db, "public.t", SCOPES[scope], p_writes="once")
    lease = acquire(db, NAMES[scope])
    one, two = db.connect("app"), db.connect("app")
    for end, code in (("rollback", None), ("commit", "LF007")):
        show(one, lease)
        one.execute(UPDATE, ("one",))
        show(two, lease)
        waiting = db.start_blocked(two, UPDATE, ("two",), by=one)
        getattr(one, end)()
        if code is None:
            waiting.result(10)
        else:
            with sqlstate(code):
                waiting.result(10)
        two.rollback()
    assert body(db) == "one"
