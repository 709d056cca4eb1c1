"""Many at once, long waits and the clock: bounds, order and no deadlock."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
from guards.scene import Lease, acquire, ask, present, renew, supersede
from harness import Connection, Database, sqlstate
from races.writer import write


def test_a_locked_lease_table_bounds_every_call(db: Database, lease: Lease) -> None:
    keeper = db.connect("fence_owner")
    keeper.execute("lock table fence._lease in access exclusive mode")
    calls: list[tuple[str, Any]] = [
        ("select * from fence.acquire('report:1')", None),
        ("select * from fence.acquire('report:new')", None),
        ("select fence.renew(%s, %s, %s)", lease.parameters),
        ("select fence.release(%s, %s, %s)", lease.parameters),
        ("select * from fence.renew_all(%s, %s, %s, '30 s')", tuple([value] for value in lease.parameters)),
        ("select fence.present(%s, %s, %s)", lease.parameters),
        ("select fence.present_all(%s, %s, %s)", tuple([value] for value in lease.parameters)),
    ]
    waiting = [db.start_blocked(db.connect("app"), call, parameters, by=keeper) for call, parameters in calls]
    for call in waiting:
        with sqlstate("55P03"):
            call.result(12)
    keeper.rollback()
    renew(db, lease)


def test_a_first_insert_of_a_name_is_bounded_too(db: Database, report: str) -> None:
    first, second = db.connect("app"), db.connect("app")
    assert ask(first, "report:new").granted
    waiting = db.start_blocked(second, "select * from fence.acquire('report:new')", by=first)
    with sqlstate("55P03"):
        waiting.result(10)
    second.rollback()
    waiting = db.start_blocked(second, "select granted, reason from fence.acquire('report:new')", by=first)
    first.commit()
    assert waiting.result(10).fetchall() == [(False, "held")]


def test_eight_who_want_one_lease(db: Database, report: str) -> None:
    """Each round one is granted, and tokens grow in the order of the commits."""
    rounds, people = 25, 8
    connections = [db.connect("app", autocommit=True) for _ in range(people)]
    barrier = threading.Barrier(people)

    def compete(connection: Connection) -> list[tuple[int, str]]:
        wins = []
        for _ in range(rounds):
            barrier.wait(20)
            answer = ask(connection, "report:1")
            if answer.granted:
                wins.append((answer.token, answer.secret))
            barrier.wait(20)
            if answer.granted:
                connection.execute("select fence.release('report:1', %s, %s)", (answer.token, answer.secret))
        return wins

    won = [future.result(60) for future in [db.in_thread(compete, connection) for connection in connections]]
    tokens = sorted(token for wins in won for token, _ in wins)
    assert len(tokens) == len(set(tokens)) == rounds
    granted = db.execute("select token from fence.history where event = 'granted' order by id")
    assert [token for (token,) in granted] == tokens
    assert len({secret for wins in won for _, secret in wins}) == rounds


def test_a_renewal_and_a_takeover_at_the_same_moment(db: Database, report: str) -> None:
    """500 times: one of them wins, and if the taker does, the old token is dead."""
    heart, taker = db.connect("app", autocommit=True), db.connect("app", autocommit=True)
    owner = db.connect("fence_owner", autocommit=True)
    rounds = 500
    meet = threading.Barrier(2)
    leases: list[Lease] = []
    taken: list[Any] = []

    def take() -> None:
        for _ in range(rounds):
            meet.wait(20)
            taken.append(ask(taker, "report:1"))
            meet.wait(20)

    taking = db.in_thread(take)
    outcomes = {"renewed": 0, "taken": 0}
    current = acquire(db, "report:1", "1 h")
    for turn in range(rounds):
        leases.append(current)
        # close enough to its expiry that either may win
        owner.execute(
            "update fence._lease set expires_at = clock_timestamp() + %s * interval '1 us'", (turn % 50 * 40,)
        )
        meet.wait(20)
        try:
            heart.execute("select fence.renew(%s, %s, %s, '1 h')", current.parameters)
            renewed = True
        except psycopg.DatabaseError as error:
            assert error.sqlstate in ("LF001", "LF002"), error  # noqa: PT017
            renewed = False
        meet.wait(20)
        answer = taken[-1]
        assert not (renewed and answer.granted), "both won"
        if answer.granted:
            assert answer.token > current.token
            with sqlstate("LF001"):
                heart.execute("select fence.renew(%s, %s, %s)", current.parameters)
            current = Lease("report:1", answer.token, answer.secret)
        elif not renewed:
            current = supersede(db, current)
        outcomes["renewed" if renewed else "taken"] += 1
    taking.result(20)
    assert min(outcomes.values()) > 0, outcomes


def test_claims_presented_together_deadlock_with_nobody(db: Database, report: str) -> None:
    """Random subsets in random order, heartbeats, takeovers and writes in between: nobody is chosen as a victim."""
    names = [f"report:{number}" for number in range(3, 13)]
    leases = {name: acquire(db, name, "1 h") for name in names}
    statement = "insert into public.lenient (id, body) values (%s, 'x') on conflict (id) do update set body = 'y'"

    def work(seed: int) -> list[str]:
        choose = random.Random(seed)
        connection = db.connect("app")
        problems = []
        for _ in range(25):
            mine = choose.sample(names, 5)
            try:
                if choose.random() < 0.5:
                    chosen = [leases[name] for name in mine]
                    connection.execute(
                        "select fence.present_all(%s, %s, %s)",
                        ([x.resource for x in chosen], [x.token for x in chosen], [x.secret for x in chosen]),
                    )
                else:
                    present(connection, *[leases[name] for name in mine])
                for name in sorted(mine, key=lambda name: int(name.split(":")[1])):
                    connection.execute(statement, (int(name.split(":")[1]),))
                if choose.random() < 0.3:
                    renew(connection, leases[mine[0]])
                connection.commit()
            except psycopg.DatabaseError as error:
                connection.rollback()
                problems.append(str(error.sqlstate))
        return problems

    found = [future.result(60) for future in [db.in_thread(work, seed) for seed in range(6)]]
    codes = {code for codes in found for code in codes}
    assert "40P01" not in codes, found


def test_two_of_one_owner_who_write_and_then_renew(db: Database, lease: Lease) -> None:
    """A share that becomes a change, twice: one waits, nobody deadlocks."""
    one, two = db.connect("app"), db.connect("app")
    for connection in (one, two):
        present(connection, lease)
    one.execute("update public.lenient set body = 'x' where id = 1")
    renew(one, lease)
    waiting = db.start_blocked(two, "select fence.renew(%s, %s, %s)", lease.parameters, by=one)
    one.commit()
    waiting.result(10)
    two.commit()


def test_a_long_transaction_sees_the_clock_move(db: Database, report: str) -> None:
    """now() stands still in a transaction; leases do not."""
    lease = acquire(db, "report:1", "300 ms")
    a, b = db.connect("app"), db.connect("app")
    for connection in (a, b):
        connection.execute("select now()")
    present(a, lease)
    assert write(a) == 1
    a.execute("select pg_sleep(0.35)")
    with sqlstate("LF002"), a.transaction():
        write(a)
    a.rollback()
    answer = ask(b, "report:1")
    assert answer.granted, "acquire in a transaction older than the expiry"
    b.commit()
    ((left,),) = db.execute("select expires_at > clock_timestamp() + interval '25 s' from fence.leases", user="monitor")
    assert left, "the new expiry counts from the moment of the grant"


def test_the_new_expiry_of_a_renewal_counts_from_after_its_wait(db: Database, report: str) -> None:
    lease = acquire(db, "report:1", "1 h")
    holder, waiter = db.connect("app"), db.connect("app")
    renew(holder, lease)
    waiting = db.start_blocked(waiter, "select fence.renew(%s, %s, %s, '10 s')", lease.parameters, by=holder)
    db.execute("select pg_sleep(0.3)")
    ((released,),) = db.execute("select clock_timestamp()")
    holder.commit()
    ((expires,),) = waiting.result(10).fetchall()
    assert (expires - released).total_seconds() >= 10
