"""Many who send the same write at the same moment: it is applied once, and nobody else is told anything but that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, protect, renew
from harness import Connection, Database, sqlstate
from writes.scene import AGAIN, KINDS, Scene, begin, make, present

import pyfence

CROWD = 20
INSERT = "insert into public.t values (1, 'a', 'eu', 'new')"


def all_at_once(db: Database, call: Callable[[], Any], crowd: int = CROWD) -> Counter[str | None]:
    """What a crowd is told: SQLSTATEs, None for an accepted write."""
    meet = threading.Barrier(crowd)

    def one() -> str | None:
        meet.wait(30)
        try:
            call()
        except psycopg.Error as error:
            return error.sqlstate
        except pyfence.FenceError as error:
            return error.sqlstate
        return None

    return Counter(future.result(60) for future in [db.in_thread(one) for _ in range(crowd)])


@pytest.mark.parametrize("statement", [AGAIN, INSERT, f"{INSERT} on conflict (id, tenant) do update set body = 'new'"])
@pytest.mark.parametrize("writes", ["once", "sequenced"])
@pytest.mark.parametrize("name", ["row", "table", "partitioned"])
def test_a_crowd_applies_a_write_once(db: Database, name: str, writes: str, statement: str) -> None:
    scene = make(db, KINDS[name])
    if statement == INSERT:
        scene.write(None, "delete from public.t where id = 1")
    scene.protect(writes)
    connections = [db.connect("app") for _ in range(CROWD)]
    free = iter(connections)

    def write() -> None:
        connection = next(free)
        present(connection, scene.lease, 1)
        connection.execute(statement)
        connection.commit()

    assert all_at_once(db, write) == {None: 1, "LF007": CROWD - 1}
    assert scene.body() == ("old!" if statement == AGAIN else "new")


@pytest.mark.parametrize("statement", [AGAIN, INSERT])
def test_a_crowd_with_old_snapshots_is_told_to_try_again(
    db: Database, isolation: psycopg.IsolationLevel, statement: str
) -> None:
    """40001 is what their own loop repeats; the second try is told LF007."""
    scene = make(db, KINDS["row"])
    if statement == INSERT:
        scene.write(None, "delete from public.t where id = 1")
    scene.protect("sequenced")
    connections = [db.connect("app", isolation=isolation) for _ in range(8)]
    free = iter(connections)

    def write() -> None:
        connection = next(free)
        while True:
            try:
                present(connection, scene.lease, 1)
                connection.execute(statement)
                connection.commit()
                return
            except psycopg.errors.SerializationFailure:
                connection.rollback()

    assert all_at_once(db, write, 8) == {None: 1, "LF007": 7}


def test_a_crowd_of_clients_applies_a_write_once(db: Database) -> None:
    scene = make(db, KINDS["table"], p_writes="sequenced")
    scene.db.execute("create table public.report (id int primary key, body text)")
    scene.db.execute("insert into public.report values (1, 'old')")
    protect(db, "public.report", "report:{id}", p_writes="sequenced")
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1")

        def write() -> None:
            assert lease.fenced_update("public.report", {"id": 1}, {"body": "new"}, sequence=7) == 1

        assert all_at_once(db, write) == {None: 1, "LF007": CROWD - 1}
        with pytest.raises(pyfence.SequenceError):
            lease.fenced_update("public.report", {"id": 1}, {"body": "older"}, sequence=6)
        assert lease.fenced_update("public.report", {"id": 1}, {"body": "newer"}, sequence=8) == 1


def test_different_numbers_at_once_are_each_applied_or_refused(db: Database) -> None:
    """Accepted numbers go up; what comes too late is LF008; nobody deadlocks."""
    scene = make(db, KINDS["row"], p_writes="sequenced")
    numbers = iter(range(1, CROWD + 1))
    accepted: list[int] = []

    def write() -> None:
        number = next(numbers)
        connection = begin(db, scene.lease, number)
        connection.execute(f"update public.t set body = body || ',{number}' where id = 1")
        connection.commit()
        accepted.append(number)

    told = all_at_once(db, write)
    assert set(told) <= {None, "LF008"}
    applied = [int(number) for number in scene.body().split(",")[1:]]
    assert applied == sorted(accepted)
    assert CROWD in applied


def test_a_token_that_writes_to_many_resources_deadlocks_with_nobody(db: Database) -> None:
    """Statements over several rows, in any physical order, take their turns in the order of the names."""
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t select n, 'old' from generate_series(10, 1, -1) n")
    protect(db, "public.t", "row:{id}", p_writes="sequenced")
    leases = [acquire(db, f"row:{number}") for number in range(1, 11)]
    numbers = iter(range(1, 1000))

    def write() -> None:
        connection = db.connect("app")
        for _ in range(10):
            connection.execute(
                "select fence.present_all(%s, %s, %s, %s)",
                (*map(list, zip(*[lease.parameters for lease in leases], strict=True)), [next(numbers)] * 10),
            )
            try:
                connection.execute("select from public.t order by id for update")
                connection.execute("update public.t set body = 'new'")
                connection.commit()
            except psycopg.DatabaseError as error:
                connection.rollback()
                if error.sqlstate != "LF008":
                    raise

    assert all_at_once(db, write, 6) == {None: 6}


# -- heartbeats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["row", "table"])
def test_heartbeats_wait_for_no_turn(db: Database, name: str) -> None:
    """Neither for the write that has it nor for one that waits for it."""
    scene = make(db, KINDS[name], p_writes="sequenced")
    scene.write(1)
    holder, waiter = scene.transaction(2), scene.transaction(3)
    holder.execute(AGAIN)
    waiting = db.start_blocked(waiter, AGAIN, by=holder)
    locked = db.connect("fence_owner", autocommit=True)
    with sqlstate("55P03"):
        locked.execute("select from fence._accepted for update nowait")
    renew(db, scene.lease)
    ((code,),) = db.execute(
        "select code from fence.renew_all(%s, %s, %s, null)", [[value] for value in scene.lease.parameters], user="app"
    )
    assert code is None
    holder.commit()
    waiting.result(10)
    waiter.commit()
    assert scene.body() == "new!!"


def test_whoever_has_no_claim_takes_no_turn(db: Database) -> None:
    """A writer without the secret cannot keep the holder's turn from him: he is refused before he locks anything."""
    scene = make(db, KINDS["row"], p_writes="sequenced")
    scene.write(1)
    other = acquire(db, "row:99")
    thief = begin(db, other, 1)
    thief.execute("savepoint a")
    for statement in (AGAIN, "insert into public.t values (1, 'b', 'eu')"):
        with sqlstate("LF005"):
            thief.execute(statement)
        thief.execute("rollback to savepoint a")
    forged = Lease(scene.lease.resource, scene.lease.token, "0" * 32)
    with sqlstate("LF006"):
        present(thief, forged, 2)
    thief.execute("rollback to savepoint a")
    scene.write(2, AGAIN)
    assert scene.body() == "new!"


def turns(connection: Connection) -> list[Any]:
    return connection.execute("select token, sequence from fence._accepted").fetchall()


def test_a_turn_taken_for_an_insert_that_stored_nothing_is_nobodys(db: Database) -> None:
    scene = Scene(db, KINDS["row"], make(db, KINDS["row"], p_writes="once").lease)
    for _ in range(2):
        scene.write(None, f"{INSERT} on conflict do nothing")
    assert turns(db.connect("fence_owner")) in ([], [(0, None)])
    scene.write(None, AGAIN)
    with sqlstate("LF007"):
        scene.write(None, f"{INSERT} on conflict do nothing")


@pytest.mark.parametrize("name", ["table", "composite"])
@pytest.mark.parametrize("sequence", [2, 3])
def test_a_turn_in_progress_keeps_other_rows_of_the_resource_waiting(db: Database, name: str, sequence: int) -> None:
    """Two rows of one resource: no lock on a row of the table makes the second writer wait."""
    scene = make(db, KINDS[name])
    scene.write(None, "insert into public.t values (5, 'a', 'eu', 'old')")
    scene.protect("sequenced")
    scene.write(1)
    first, second = scene.transaction(sequence), scene.transaction(2)
    first.execute(AGAIN)
    waiting = db.start_blocked(second, "update public.t set body = 'twice' where id = 5", by=first)
    first.commit()
    with sqlstate("LF007" if sequence == 2 else "LF008"):
        waiting.result(10)
    second.rollback()
    assert db.execute("select body from public.t where id = 5") == [("old",)]
