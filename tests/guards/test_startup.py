"""Claims without `present`: the start-up setting fence.claim, and fence.enter."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import (
    Lease,
    Scope,
    acquire,
    ask,
    contents,
    expire,
    present,
    protect,
    release,
    renew,
    revoke,
    startup,
    supersede,
)
from harness import Connection, Database, sqlstate

WRITE = "update public.t set body = 'new' where tenant = 'a'"


def mine(db: Database, scope: Scope) -> list[Lease]:
    return [acquire(db, name) for name in scope.mine]


@pytest.mark.parametrize("user", ["app", "outsider"])
def test_a_connection_writes_under_its_start_up_claims(
    db: Database, t: str, scope: Scope, user: str, isolation: psycopg.IsolationLevel
) -> None:
    writer = db.connect(user, isolation=isolation, options=startup(*mine(db, scope)))
    for _ in range(2):
        writer.execute(WRITE)
        writer.commit()
    writer.autocommit = True
    writer.execute(WRITE)
    assert [row[3] for row in contents(db, t)] == ["new", "new", "old"]
    with sqlstate("LF005") if scope.template != "nightly" else sqlstate("LF004"):
        (writer if scope.template != "nightly" else db.connect(user)).execute("delete from public.t")


def test_a_stale_start_up_claim_is_refused(
    db: Database, t: str, scope: Scope, isolation: psycopg.IsolationLevel
) -> None:
    leases = mine(db, scope)
    writer = db.connect("app", isolation=isolation, options=startup(*leases))
    writer.execute(WRITE)
    writer.commit()
    supersede(db, leases[0])
    before = contents(db, t)
    with sqlstate("LF001"):
        writer.execute(WRITE)
    writer.rollback()
    assert contents(db, t) == before


def test_an_expired_or_revoked_or_forged_start_up_claim_is_refused(db: Database, t: str, scope: Scope) -> None:
    leases = mine(db, scope)
    forged = [Lease(x.resource, x.token, "0" * 32) for x in leases]
    with sqlstate("LF006"):
        db.connect("app", options=startup(*forged)).execute(WRITE)
    writer = db.connect("app", options=startup(*leases))
    expire(db, leases[0].resource)
    with sqlstate("LF002"):
        writer.execute(WRITE)
    writer.rollback()
    revoke(db, leases[0].resource)
    with sqlstate("LF001"):
        writer.execute(WRITE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "LF004"),
        ("42abc", "LF005"),
        (",", "LF005"),
        (":", "LF005"),
        (":::", "LF005"),
        ("NAME", "LF006"),
        ("NAME:", "LF005"),
        ("NAME::", "LF005"),
        ("NAME:-1:x", "LF006"),
        ("NAME:99999999999999999999999:x", "LF006"),
        ("NAME:1:", "LF001"),
        ("NAME 1", "LF001"),
        ("x" * 1_000_000, "LF005"),
    ],
)
def test_garbage_in_the_setting_is_a_clean_refusal(db: Database, text: str, code: str) -> None:
    db.execute("create table public.t (id int primary key, body text)")
    protect(db, "public.t", "row:{id}")
    acquire(db, "row:1")
    writer = db.connect("app")
    writer.execute("select set_config('fence.claim', %s, false)", (text.replace("NAME", b"row:1".hex()),))
    with sqlstate(code):
        writer.execute("insert into public.t values (1, 'x')")


def test_what_was_presented_goes_before_the_start_up_claim(db: Database, t: str, scope: Scope) -> None:
    leases = mine(db, scope)
    newer = [supersede(db, lease) for lease in leases]
    writer = db.connect("app", options=startup(*leases))
    present(writer, *newer)
    writer.execute(WRITE)
    writer.commit()
    with sqlstate("LF001"):
        writer.execute(WRITE)


def test_a_start_up_claim_carries_a_sequence(db: Database) -> None:
    db.execute("create table public.t (id int primary key, body text)")
    protect(db, "public.t", "nightly", p_writes="sequenced")
    lease = acquire(db, "nightly")
    insert = "insert into public.t select coalesce(max(id), 0) + 1 from public.t"
    db.connect("app", autocommit=True, options=startup(lease, sequence=5)).execute(insert)
    for sequence, code in ((5, "LF007"), (4, "LF008"), (None, "LF008")):
        with sqlstate(code):
            db.connect("app", options=startup(lease, sequence=sequence)).execute(insert)
    assert len(contents(db, "public.t")) == 1


def test_a_transaction_under_a_start_up_claim_may_not_idle_longer_than_the_lease(db: Database) -> None:
    """A frozen job would else keep its successor out for ever."""
    limit = "show idle_in_transaction_session_timeout"
    db.execute("create table public.u (id int)")
    protect(db, "public.u", "u")
    writer = db.connect("app", options=startup(acquire(db, "u", "7 s")))
    writer.execute("insert into public.u values (1)")
    assert writer.execute(limit).fetchone() == ("7s",)
    writer.commit()
    assert writer.execute(limit).fetchone() == ("0",)


def enter(connection: Connection, resource: str, ttl: str = "30 s") -> int:
    ((token,),) = connection.execute("select fence.enter(%s, %s::interval, 'cron')", (resource, ttl)).fetchall()
    return int(token)


def test_enter_is_a_lease_for_one_transaction(db: Database, t: str, scope: Scope) -> None:
    for lease in mine(db, scope):
        release(db, lease)
    job = db.connect("app")
    tokens = [enter(job, name) for name in scope.mine]
    job.execute(WRITE)
    assert ask(db, scope.mine[0]).reason == "draining"
    job.commit()
    assert [row[3] for row in contents(db, t)] == ["new", "new", "old"]
    with sqlstate("LF004"):
        job.execute(WRITE)
    job.rollback()
    for name, token in zip(scope.mine, tokens, strict=True):
        assert acquire(db, name).token > token


def test_nothing_that_enter_left_behind_is_a_claim_afterwards(db: Database, t: str, scope: Scope) -> None:
    """The session can read the secret that was made for it; it is worth nothing in another transaction."""
    job = db.connect("app")
    for name in scope.mine:
        enter(job, name)
    ((text,),) = job.execute("select current_setting('fence.claims')").fetchall()
    job.commit()
    copies = [line.split() for line in text.split("\n") if line][1:]
    leases = [Lease(bytes.fromhex(name).decode(), int(token), secret) for name, token, secret, _ in copies]
    assert len(leases) == len(scope.mine)
    with sqlstate("LF001"):
        present(job, leases[0])
    job.rollback()
    with sqlstate("LF001"):
        renew(db, leases[0])
    arrays = [list(column) for column in zip(*(lease.parameters for lease in leases), strict=True)]
    renewed = db.execute("select expires_at, code from fence.renew_all(%s, %s, %s, null)", arrays, user="app")
    assert set(renewed) == {(None, "LF001")}
    with sqlstate("LF001"):
        db.connect("app", options=startup(*leases)).execute(WRITE)
    assert {row[0] for row in db.execute("select state from fence.leases")} == {"ended"}


def test_enter_is_refused_where_somebody_holds_the_lease(db: Database, t: str, scope: Scope) -> None:
    lease = acquire(db, scope.mine[0])
    job = db.connect("app")
    with sqlstate("LF012") as refused:
        enter(job, lease.resource)
    assert refused.diag.constraint_name == "LF012"
    assert "tester" in refused.diag.message_detail
    job.rollback()
    expire(db, lease.resource)
    assert enter(job, lease.resource) > lease.token


def test_two_jobs_that_enter_at_once(db: Database, t: str, scope: Scope) -> None:
    name = scope.mine[0]
    release(db, acquire(db, name))
    first, second = db.connect("app"), db.connect("app")
    enter(first, name)
    with sqlstate("LF012") as refused:
        enter(second, name)
    assert "draining" in refused.diag.message_detail
    second.rollback()
    first.rollback()
    enter(second, name)
    second.commit()


def test_two_jobs_that_enter_a_new_name_at_once(db: Database) -> None:
    """Nothing is there yet that could be skipped: the second waits, two seconds at the most, and grants nothing."""
    first, second = db.connect("app"), db.connect("app")
    enter(first, "new")
    with sqlstate("55P03"):
        enter(second, "new")


def test_a_rolled_back_enter_leaves_the_lease_as_it_was(db: Database, t: str, scope: Scope) -> None:
    job = db.connect("app")
    job.execute("savepoint a")
    for name in scope.mine:
        enter(job, name)
    job.execute("rollback to savepoint a")
    with sqlstate("LF004"):
        job.execute(WRITE)
    job.rollback()
    assert db.execute("select count(*) from fence.leases") == [(0,)]


def test_the_option_says_how_long_a_transaction_under_a_lease_may_idle(db: Database) -> None:
    """Shorter or longer than the ttl; a shorter limit of the session wins. Leases keep what they were granted with."""
    limit = "show idle_in_transaction_session_timeout"
    early = acquire(db, "early", "20 s")
    for value, own, expected in (
        ("2 s", "0", "2s"),
        ("5 min", "0", "5min"),
        ("5 min", "7s", "7s"),
        ("ttl", "0", "20s"),
    ):
        db.execute("select fence.set_option('idle_timeout', %s, 'test')", (value,))
        lease = acquire(db, f"x {value} {own}", "20 s")
        for claim, shown in ((lease, expected), (early, "7s" if own == "7s" else "20s")):
            writer = db.connect("app", options=f"-c idle_in_transaction_session_timeout={own}")
            present(writer, claim)
            assert writer.execute(limit).fetchone() == (shown,)
