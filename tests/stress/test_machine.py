"""Hypothesis plays holders, takeovers and transactions against a model, step by step, and shortens what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, forge
from harness import Connection, Database
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from stress.ablation import ABLATIONS
from stress.conftest import LONG
from stress.model import CLOSED, EXPIRED, RC, RR, SER, Held, Model, Open

RESOURCES, HOLDERS = 2, 2
LEVELS = {
    RC: psycopg.IsolationLevel.READ_COMMITTED,
    RR: psycopg.IsolationLevel.REPEATABLE_READ,
    SER: psycopg.IsolationLevel.SERIALIZABLE,
}
resources = st.integers(0, RESOURCES - 1)
holders = st.integers(0, HOLDERS - 1)
levels = st.sampled_from(list(LEVELS))


class Players:
    """The connections, made once: every run of the machine has names and rows of its own."""

    def __init__(self, db: Database, runs: int) -> None:
        db.execute(
            "create table public.play "
            "(run int, resource int, holder int, body int not null, primary key (run, resource, holder))"
        )
        db.execute(
            f"insert into public.play select n, r, h, 0 from generate_series(1, {runs}) n, "
            f"generate_series(0, {RESOURCES - 1}) r, generate_series(0, {HOLDERS - 1}) h"
        )
        db.execute("select fence.protect('public.play', 'play:{run}:{resource}')")
        self.side = db.connect("app", autocommit=True)
        self.owner = db.connect("fence_owner", autocommit=True)
        self.admin = db.connect("app_owner", autocommit=True)
        self.holders = [db.connect("app") for _ in range(HOLDERS)]
        self.runs = iter(range(1, runs + 1))


class Machine(RuleBasedStateMachine):
    """The steps. What each is answered is compared with the model at once."""

    leases = Bundle("leases")
    players: Players

    def __init__(self) -> None:
        super().__init__()
        self.run = next(self.players.runs)
        self.model = Model(RESOURCES, HOLDERS)

    # -- leases ---------------------------------------------------------------------------------------------------

    @rule(target=leases, resource=resources)
    def acquire(self, resource: int) -> Held | None:
        """G1, and that nobody is granted what somebody holds or writes under."""
        expected = self.model.expected_of_acquire(resource)
        ((granted, token, secret, reason),) = self.players.side.execute(
            "select granted, token, secret, reason from fence.acquire(%s, '1 h')", (self.name(resource),)
        ).fetchall()
        assert (granted, reason) == (expected is None, expected)
        if expected == "draining" and self.model.now[resource].status == EXPIRED:
            self.model.change(resource, CLOSED)
        if not granted:
            return None
        self.model.grant(resource, token)
        return Held(resource, token, secret)

    @rule(resource=resources)
    def expire(self, resource: int) -> None:
        self.players.owner.execute(
            "update fence._lease set expires_at = clock_timestamp() - interval '1 ms' where resource = %s",
            (self.name(resource),),
        )
        if self.model.now[resource].token is not None:
            self.model.change(resource, CLOSED if self.model.now[resource].status == CLOSED else EXPIRED)

    @rule(resource=resources)
    def revoke(self, resource: int) -> None:
        ((ended,),) = self.players.admin.execute("select fence.revoke(%s, 'play')", (self.name(resource),)).fetchall()
        assert ended == (self.model.now[resource].status != CLOSED)
        if ended:
            self.model.change(resource, CLOSED)

    @rule(lease=leases)
    def release(self, lease: Held | None) -> None:
        if lease is None:
            return
        ((ended,),) = self.players.side.execute("select fence.release(%s, %s, %s)", self.claim(lease)).fetchall()
        state = self.model.now[lease.resource]
        assert ended == (state.token == lease.token and state.status != CLOSED)
        if ended:
            self.model.change(lease.resource, CLOSED)

    @rule(lease=leases)
    def renew(self, lease: Held | None) -> None:
        """Heartbeats wait for no open write."""
        if lease is None:
            return
        expected = self.model.expected_of_renew(lease)
        with answered(expected):
            self.players.side.execute("select fence.renew(%s, %s, %s, '1 h')", self.claim(lease))
        if expected is None:
            self.model.change(lease.resource)

    @rule(target=leases, resource=resources, how=st.sampled_from(["expire", "revoke"]))
    def take_over(self, resource: int, how: str) -> Held | None:
        """The steps that lead to a new holder, together: at random they meet too rarely."""
        self.expire(resource) if how == "expire" else self.revoke(resource)
        return self.acquire(resource)

    # -- transactions ---------------------------------------------------------------------------------------------

    @rule(holder=holders, level=levels, early=st.booleans(), lease=leases, value=st.integers(1, 9))
    def work(self, holder: int, level: str, early: bool, lease: Held | None, value: int) -> None:
        """The steps of an ordinary writer, together, with the commit left out."""
        self.begin(holder, level, early)
        self.present(holder, lease)
        if lease is not None:
            self.write(holder, lease.resource, value)

    @rule(holder=holders, level=levels, early=st.booleans())
    def begin(self, holder: int, level: str, early: bool) -> None:
        """With `early`, the snapshot is taken at once."""
        if holder in self.model.open:
            return
        connection = self.players.holders[holder]
        connection.isolation_level = LEVELS[level]
        self.model.open[holder] = Open(level)
        if early:
            connection.execute("select 1 from public.play limit 1")
            self.model.look(holder)

    @precondition(lambda self: self.model.open)
    @rule(holder=holders, lease=leases)
    def present(self, holder: int, lease: Held | None) -> None:
        if lease is None or not self.may(holder):
            return
        self.model.look(holder)
        with self.statement(holder, self.model.verdict(holder, lease, clock=False)) as connection:
            connection.execute("select fence.present(%s, %s, %s)", self.claim(lease))
        transaction = self.model.open[holder]
        if not transaction.failed:
            transaction.work.claims[lease.resource] = lease
            transaction.work.locks.add(lease.resource)

    @precondition(lambda self: self.model.open)
    @rule(holder=holders, lease=leases)
    def forge(self, holder: int, lease: Held | None) -> None:
        """G6: what anybody may put into the setting proves nothing, and replaces what is there."""
        if lease is None or not self.may(holder):
            return
        self.model.look(holder)
        forge(self.players.holders[holder], Lease(*self.claim(lease)))
        self.model.open[holder].work.claims = {lease.resource: lease}

    @precondition(lambda self: self.model.open)
    @rule(holder=holders, resource=resources, token=st.sampled_from([-1, 0, 1, 2**53, 2**63 - 1]))
    def invent(self, holder: int, resource: int, token: int) -> None:
        """G6: a made-up number is refused, and holds up nobody; what others are answered afterwards shows that."""
        if not self.may(holder) or self.model.now[resource].token is None:
            return
        self.model.look(holder)
        transaction = self.model.open[holder]
        known = transaction.seen is None or transaction.seen[resource].grants == self.model.now[resource].grants
        code = "40001" if not known else "LF001" if 0 <= token < (self.model.now[resource].token or 0) else "LF006"
        with self.statement(holder, code) as connection:
            connection.execute("select fence.present(%s, %s, %s)", (self.name(resource), token, "0" * 32))

    @precondition(lambda self: self.model.open)
    @rule(holder=holders, resource=resources, value=st.integers(1, 9))
    def write(self, holder: int, resource: int, value: int) -> None:
        """G2, G8: accepted and one row, or an error with its own code."""
        if not self.may(holder):
            return
        self.model.look(holder)
        with self.statement(holder, self.model.expected_of_write(holder, resource)) as connection:
            done = connection.execute(
                "update public.play set body = %s where run = %s and resource = %s and holder = %s",
                (value, self.run, resource, holder),
            )
            assert done.rowcount == 1
        work = self.model.open[holder].work
        if not self.model.open[holder].failed:
            work.locks.add(resource)
            work.writes[resource] = value
            work.written_under[resource] = work.claims[resource].token

    @precondition(lambda self: self.model.open)
    @rule(holder=holders)
    def savepoint(self, holder: int) -> None:
        if not self.may(holder):
            return
        transaction = self.model.open[holder]
        self.players.holders[holder].execute(f"savepoint s{len(transaction.savepoints)}")
        transaction.savepoints.append(deepcopy(transaction.work))

    @precondition(lambda self: self.model.open)
    @rule(holder=holders, release=st.booleans())
    def end_savepoint(self, holder: int, release: bool) -> None:
        transaction = self.model.open.get(holder)
        if transaction is None or not transaction.savepoints:
            return
        name = f"s{len(transaction.savepoints) - 1}"
        before = transaction.savepoints.pop()
        if not release or transaction.failed:
            self.players.holders[holder].execute(f"rollback to savepoint {name}")
            transaction.work, transaction.failed = before, False
        self.players.holders[holder].execute(f"release savepoint {name}")

    @precondition(lambda self: self.model.open)
    @rule(holder=holders)
    def commit(self, holder: int) -> None:
        if not self.may(holder):
            return
        try:
            self.players.holders[holder].commit()
        except psycopg.errors.SerializationFailure:
            assert self.model.open.pop(holder).level == SER
        else:
            self.model.commit(holder)
        self.compare()

    @precondition(lambda self: self.model.open)
    @rule(holder=holders)
    def rollback(self, holder: int) -> None:
        if self.model.open.pop(holder, None) is not None:
            self.players.holders[holder].rollback()
            self.compare()

    def teardown(self) -> None:
        for connection in self.players.holders:
            with suppress(psycopg.Error):
                connection.rollback()
        self.compare()

    # -- helpers --------------------------------------------------------------------------------------------------

    def name(self, resource: int) -> str:
        return f"play:{self.run}:{resource}"

    def claim(self, lease: Held) -> tuple[str, int, str]:
        return self.name(lease.resource), lease.token, lease.secret

    def may(self, holder: int) -> bool:
        """Whether the holder is in a transaction that can go on."""
        return holder in self.model.open and not self.model.open[holder].failed

    def compare(self) -> None:
        """G8: the table holds what was committed, and nothing of what was refused."""
        rows = self.players.side.execute(
            "select resource, holder, body from public.play where run = %s", (self.run,)
        ).fetchall()
        assert {(resource, holder): body for resource, holder, body in rows} == self.model.rows

    @contextmanager
    def statement(self, holder: int, expected: str | None) -> Iterator[Connection]:
        """A statement in a holder's transaction, which an error leaves failed."""
        transaction = self.model.open[holder]
        try:
            with answered(expected):
                yield self.players.holders[holder]
        except psycopg.errors.SerializationFailure:
            if transaction.level != SER:
                raise  # only SERIALIZABLE may find a conflict that the model does not know of
            transaction.fail()
        else:
            if expected is not None:
                transaction.fail()


@contextmanager
def answered(code: str | None) -> Iterator[None]:
    """The block raises an error with this SQLSTATE; None: it raises none."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != code:
            raise
    else:
        assert code is None, f"accepted, expected {code}"


def play(db: Database, examples: int, steps: int, **options: Any) -> None:
    """Run the machine; every example has rows of its own, and shortening one takes many."""
    machine = type("Bound", (Machine,), {"players": Players(db, examples + 2000)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


def test_holders_and_takeovers_against_the_model(db: Database) -> None:
    play(db, 25, 40, derandomize=True)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_many_holders_and_takeovers_against_the_model(db: Database) -> None:
    play(db, int(LONG * 5), 80)


@pytest.mark.parametrize("name", ["no share", "no takeover lock"])
def test_the_machine_notices_a_missing_lock(db: Database, name: str) -> None:
    ABLATIONS[name](db)
    with pytest.raises((AssertionError, psycopg.Error)):
        play(db, 200, 40, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
