"""The queue in the database: who waits is served in the order of arrival, whoever is not there is skipped."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, expire, release, renew, revoke
from harness import Connection, Database, sqlstate

TURN = "select granted, token, secret, reason, ticket from fence._acquire_in_turn('report:1', '30 s', 'x', %s, %s)"


def turn(on: Database | Connection, ticket: int | None, listener: int | None = None) -> Any:
    """granted, reason, ticket."""
    if isinstance(on, Database):
        ((granted, _, _, reason, ticket),) = on.execute(TURN, (ticket, listener), user="app")
    else:
        ((granted, _, _, reason, ticket),) = on.execute(TURN, (ticket, listener)).fetchall()
    return granted, reason, ticket


def queue_up(on: Database | Connection, listener: int | None = None) -> int:
    granted, reason, ticket = turn(on, 0, listener)
    assert (granted, reason) == (False, "held")
    return int(ticket)


def tickets(db: Database) -> list[int]:
    return [ticket for (ticket,) in db.execute("select ticket from fence._waiter order by 1", user="fence_owner")]


def is_over(db: Database, ticket: int) -> None:
    """Let the time in which a waiter had to ask have passed."""
    db.execute("update fence._waiter set due_at = clock_timestamp() where ticket = %s", (ticket,), user="fence_owner")


class Listener:
    """A connection that hears when its tickets are called."""

    def __init__(self, db: Database) -> None:
        self.connection = db.connect("app", autocommit=True)
        self.pid = self.connection.info.backend_pid
        self.connection.execute(f"listen fence_{self.pid}")

    def calls(self, timeout: float = 0) -> list[int]:
        return [
            int(call.payload) for call in self.connection.notifies(timeout=timeout, stop_after=1 if timeout else None)
        ]


@pytest.fixture
def lease(db: Database) -> Lease:
    return acquire(db, "report:1", "1 h")


def test_the_first_who_came_is_the_first_who_gets_it(db: Database, lease: Lease) -> None:
    first, second, third = (queue_up(db) for _ in range(3))
    assert first < second < third
    release(db, lease)
    for ticket in (third, second):
        assert turn(db, ticket) == (False, "queued", ticket)
    assert turn(db, first) == (True, None, first)
    assert tickets(db) == [second, third]
    assert turn(db, second) == (False, "held", second)


def test_whoever_begins_to_wait_comes_after_those_who_do(db: Database, lease: Lease) -> None:
    waiting = queue_up(db)
    release(db, lease)
    assert turn(db, None) == (False, "queued", None)
    assert turn(db, 0)[:2] == (False, "queued")
    assert turn(db, waiting)[0]


def test_whoever_does_not_wait_may_come_in_between(db: Database, lease: Lease) -> None:
    waiting = queue_up(db)
    release(db, lease)
    assert ask(db, "report:1").granted
    assert turn(db, waiting) == (False, "held", waiting)


@pytest.mark.parametrize("end", ["release", "revoke", "expiry"])
def test_the_end_of_a_lease_calls_the_first_and_tells_the_second(db: Database, lease: Lease, end: str) -> None:
    """The expiry is told by whoever finds the lease free."""
    one, two = Listener(db), Listener(db)
    first = queue_up(db, one.pid)
    second, third = queue_up(db, two.pid), queue_up(db, two.pid)
    if end == "release":
        release(db, lease)
    elif end == "revoke":
        revoke(db, "report:1")
    else:
        expire(db, "report:1")
        assert one.calls() == []
        assert turn(db, third, two.pid) == (False, "queued", third)
    assert one.calls(5) == [first]
    assert two.calls(5) == [second]
    assert turn(db, second, two.pid) == (False, "queued", second), "the first one has two seconds"
    assert (one.calls(), two.calls()) == ([], []), "called once"
    assert turn(db, first, one.pid)[0]


def test_one_that_does_not_come_when_called_is_skipped_and_may_come_back(db: Database, lease: Lease) -> None:
    listener = Listener(db)
    first, second = queue_up(db, listener.pid), queue_up(db, listener.pid)
    release(db, lease)
    ((left,),) = db.execute(
        "select due_at - clock_timestamp() from fence._waiter where ticket = %s", (first,), user="fence_owner"
    )
    assert left.total_seconds() <= 2
    is_over(db, first)
    granted, token, secret, _, _ = db.execute(TURN, (second, listener.pid), user="app")[0]
    assert granted
    assert tickets(db) == []
    assert turn(db, first, listener.pid) == (False, "held", first), "in the place it had"
    third = queue_up(db, listener.pid)
    release(db, Lease("report:1", token, secret))
    assert turn(db, third, listener.pid)[:2] == (False, "queued")
    assert turn(db, first, listener.pid)[0]


def test_one_whose_listener_is_gone_is_skipped_at_once(db: Database, lease: Lease) -> None:
    dead, alive = Listener(db), Listener(db)
    gone = [queue_up(db, dead.pid) for _ in range(3)]
    ticket = queue_up(db, alive.pid)
    db.cluster.admin.execute("select pg_terminate_backend(%s, 10000)", (dead.pid,))
    release(db, lease)
    assert alive.calls(5) == [ticket]
    assert set(tickets(db)).isdisjoint(gone)
    assert turn(db, ticket, alive.pid)[0]


def test_one_that_waits_no_longer_lets_the_next_one_be_called(db: Database, lease: Lease) -> None:
    one, two = Listener(db), Listener(db)
    first, second = queue_up(db, one.pid), queue_up(db, two.pid)
    release(db, lease)
    assert one.calls(5) == [first]
    assert two.calls(5) == [second]
    db.execute("select fence._decline(%s)", (first,), user="app")
    assert two.calls(5) == [second]
    assert turn(db, second, two.pid)[0]
    db.execute("select fence._decline(%s)", (second,), user="app")


@pytest.mark.parametrize("listens", [True, False], ids=["listens", "polls"])
def test_a_first_one_that_is_silent_does_not_keep_what_others_decline_from_the_next(
    db: Database, lease: Lease, listens: bool
) -> None:
    """Nobody else would tell the third one, which is silent for as long as it was told that the lease lasts."""
    silent, one, two = Listener(db), Listener(db), Listener(db)
    first = queue_up(db, silent.pid if listens else None)
    second, third, fourth = queue_up(db, one.pid), queue_up(db, two.pid), queue_up(db, two.pid)
    release(db, lease)
    assert one.calls(5) == [second]
    ((due,),) = db.execute("select due_at from fence._waiter where ticket = %s", (first,), user="fence_owner")
    db.execute("select fence._decline(%s)", (second,), user="app")
    assert two.calls(5) == [third]
    db.execute("select fence._decline(%s)", (third,), user="app")
    assert two.calls(5) == [fourth]
    assert db.execute("select due_at from fence._waiter where ticket = %s", (first,), user="fence_owner") == [(due,)], (
        "no second term for the first one"
    )
    is_over(db, first)
    assert turn(db, fourth, two.pid)[0]


@pytest.mark.parametrize("first", ["release", "place"])
def test_a_place_that_a_release_does_not_see_is_asked_for_again_within_a_second(
    db: Database, lease: Lease, first: str
) -> None:
    """Neither waits for the other's transaction: the holder's heartbeats must not wait for a stranger's."""
    releasing, waiter, listener = db.connect("app"), db.connect("app"), Listener(db)
    steps = {
        "release": lambda: releasing.execute("select fence.release(%s, %s, %s)", lease.parameters),
        "place": lambda: waiter.execute(
            "select ticket, retry_in <= interval '1 s' from fence._acquire_in_turn('report:1', '30 s', 'x', 0, %s)",
            (listener.pid,),
        ),
    }
    second = "place" if first == "release" else "release"
    done = {first: steps[first](), second: steps[second]()}
    ((ticket, soon),) = done["place"].fetchall()
    assert soon
    for connection in (releasing, waiter):
        connection.commit()
    assert listener.calls(0.1) == []
    assert turn(db, ticket, listener.pid)[0]


def test_who_has_asked_before_is_called_and_asks_no_more_often_than_that(db: Database, lease: Lease) -> None:
    ticket = queue_up(db)
    ((soon,),) = db.execute(
        "select retry_in <= interval '1 s' from fence._acquire_in_turn('report:1', '30 s', 'x', %s, null)",
        (ticket,),
        user="app",
    )
    assert not soon


def test_a_waiter_in_an_open_transaction_holds_up_no_heartbeat(db: Database, lease: Lease) -> None:
    waiter, holder = db.connect("app"), db.connect("app", autocommit=True)
    queue_up(waiter)
    holder.execute("set lock_timeout = '10 ms'")
    renew(holder, lease)
    revoke(db, "report:1")


@pytest.mark.parametrize("listens", [True, False])
def test_asking_again_keeps_nobody_waiting(db: Database, lease: Lease, listens: bool) -> None:
    """Its row is locked then: a release calls it without that, and waits for nothing."""
    listener = Listener(db)
    pid = listener.pid if listens else None
    ticket = queue_up(db, pid)
    waiter = db.connect("app")
    turn(waiter, ticket, pid)
    releasing = db.connect("app", autocommit=True)
    releasing.execute("set statement_timeout = '2 s'")
    assert releasing.execute("select fence.release(%s, %s, %s)", lease.parameters).fetchall() == [(True,)]
    if listens:
        assert listener.calls(5) == [ticket]


@pytest.mark.parametrize("which", ["the next one", "one that is not there any more"])
def test_no_release_waits_for_a_place_that_somebody_else_is_changing(db: Database, lease: Lease, which: str) -> None:
    listener = Listener(db)
    first, second = queue_up(db, listener.pid), queue_up(db, listener.pid)
    if which == "one that is not there any more":
        is_over(db, first)
    changing = db.connect("fence_owner")
    changing.execute("select from fence._waiter where ticket = %s for update", (first,))
    releasing = db.connect("app", autocommit=True)
    releasing.execute("set statement_timeout = '1 s'")
    assert releasing.execute("select fence.release(%s, %s, %s)", lease.parameters).fetchall() == [(True,)]
    assert second in [*listener.calls(5), *listener.calls(0.2)]
    changing.rollback()
    assert tickets(db) == [first, second]


def test_a_ticket_of_another_resource_is_no_place(db: Database, lease: Lease) -> None:
    acquire(db, "report:2", "1 h")
    other = "select ticket from fence._acquire_in_turn('report:2', '30 s', 'x', 0, null)"
    ((ticket,),) = db.execute(other, user="app")
    mine = queue_up(db)
    release(db, lease)
    assert turn(db, ticket)[:2] == (False, "queued")
    assert turn(db, mine)[0]
    assert tickets(db) == [ticket]


def test_an_answer_that_grants_nothing_does_not_wait_for_the_disk(db: Database, lease: Lease) -> None:
    first, second = queue_up(db), db.connect("app")
    assert turn(second, None)[1] == "held"
    assert second.execute("show synchronous_commit").fetchall() == [("off",)]
    second.rollback()
    release(db, lease)
    assert turn(second, None)[1] == "queued"
    assert second.execute("show synchronous_commit").fetchall() == [("off",)]
    second.rollback()
    granted = db.connect("app")
    assert turn(granted, first)[0]
    assert granted.execute("show synchronous_commit").fetchall() == [("on",)]


def test_what_waiters_leave_behind_is_swept_up(db: Database, lease: Lease) -> None:
    """Also where nobody asks for that resource again."""
    acquire(db, "report:2", "1 h")
    left = queue_up(db)
    db.execute("update fence._waiter set due_at = clock_timestamp() - interval '2 min'", user="fence_owner")
    other = "select ticket from fence._acquire_in_turn('report:2', '30 s', 'x', 0, null)"
    ((ticket,),) = db.execute(other, user="app")
    assert ticket != left
    assert tickets(db) == [ticket]


@pytest.mark.parametrize("listens", [False, True])
def test_who_listens_may_be_silent_for_longer(db: Database, lease: Lease, listens: bool) -> None:
    queue_up(db, Listener(db).pid if listens else None)
    ((left,),) = db.execute("select due_at - clock_timestamp() from fence._waiter", user="fence_owner")
    assert (35 < left.total_seconds() <= 40) if listens else (0 < left.total_seconds() <= 5)


def test_sweeping_up_waits_for_nobody(db: Database, lease: Lease) -> None:
    left = queue_up(db)
    db.execute("update fence._waiter set due_at = clock_timestamp() - interval '2 min'", user="fence_owner")
    changing = db.connect("fence_owner")
    changing.execute("select from fence._waiter where ticket = %s for update", (left,))
    waiter = db.connect("app", autocommit=True)
    waiter.execute("set statement_timeout = '1 s'")
    ticket = queue_up(waiter)
    assert tickets(db) == [left, ticket]


def test_waiting_is_for_who_may_acquire(db: Database, lease: Lease) -> None:
    for statement in (TURN, "select fence._decline(%s)"):
        with sqlstate("42501"):
            db.execute(statement, (0, None)[: statement.count("%s")], user="monitor")
    with sqlstate("LF010"):
        db.execute(TURN.replace("report:1", "report:{id}"), (0, None), user="app")


@pytest.mark.parametrize("ticket", [None, 0])
@pytest.mark.parametrize("name", [None, "", "report:{id}"])
def test_nobody_waits_for_what_is_no_name(db: Database, name: str | None, ticket: int | None) -> None:
    with sqlstate("LF010"):
        db.execute("select fence._acquire_in_turn(%s, '30 s', 'x', %s, null)", (name, ticket), user="app")
    assert tickets(db) == []


def test_places_are_no_leases_at_any_level(db: Database, isolation: psycopg.IsolationLevel) -> None:
    """Two who ask for a free lease at once: one gets it, also where both think it is their turn."""
    lease = acquire(db, "report:1", "1 h")
    one, two = db.connect("app", isolation=isolation), db.connect("app")
    first = queue_up(db)
    release(db, lease)
    assert turn(one, first)[0]
    assert ask(two, "report:1").reason == "draining"
    one.commit()
    assert ask(db, "report:1").reason == "held"


@pytest.mark.parametrize("end", ["enter", "lineage"])
def test_a_lease_that_is_over_in_another_way_is_given_in_turn_too(db: Database, end: str) -> None:
    """The secret is there and the time is not over, and yet nobody holds it."""
    entered = db.connect("app")
    if end == "enter":
        release(db, acquire(db, "report:1"))
        entered.execute("select fence.enter('report:1')")
        granted, reason, first = turn(db, 0)
        assert (granted, reason) == (False, "draining")
        entered.commit()
    else:
        acquire(db, "report:1", "1 h")
        first = queue_up(db)
        db.execute("select fence.confirm_lineage()")
    assert turn(db, None)[:2] == (False, "queued")
    assert turn(db, first) == (True, None, first)


@pytest.mark.parametrize("reason", ["held", "queued"])
def test_a_grant_is_on_disk_whatever_else_its_transaction_asks_for(db: Database, lease: Lease, reason: str) -> None:
    queue_up(db)
    if reason == "queued":
        release(db, lease)
    asking = db.connect("app")
    free = "select granted from fence._acquire_in_turn('free', '30 s', 'x', null, null)"
    assert asking.execute(free).fetchall() == [(True,)]
    assert turn(asking, None)[1] == reason
    assert asking.execute("show synchronous_commit").fetchall() == [("on",)]
