"""Heartbeats: one failure gives nothing up, the deadline gives everything up, and the database's word is final."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from client.support import backends, body, terminate
from harness import Database, wait_until
from proxy import Proxy

import pyfence
from pyfence import _clock
from pyfence._renewal import Renewer
from pyfence._state import LeaseState
from pyfence.types import Grant


def expiry(db: Database, resource: str = "report:1") -> object:
    return db.execute("select expires_at from fence.leases where resource = %s", (resource,))[0][0]


def revoke(db: Database, resource: str = "report:1") -> None:
    assert db.execute("select fence.revoke(%s, 'test')", (resource,)) == [(True,)]


@contextmanager
def holding(
    fence: pyfence.Fence, ttl: float, on_lost: Callable[[pyfence.Lease], object] | None = None
) -> Iterator[pyfence.Lease]:
    """A lease() whose loss is not the test's error."""
    try:
        with fence.lease("report:1", ttl=ttl, on_lost=on_lost) as lease:
            yield lease
    except pyfence.LeaseLost:
        pass


def test_a_lease_outlives_its_ttl_and_holds_no_connection(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1", ttl=0.6) as lease:
        first = lease.expires_at
        assert not lease.lost.wait(1.5)
        lease.raise_if_lost()
        assert lease.expires_at > first
        wait_until(lambda: lease.expires_at == expiry(db), "the lease knows its expiry, between two renewals")
        assert "idle in transaction" not in dict(backends(db)).values()
        assert lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
    assert db.execute("select state from fence.leases") == [("closed",)]
    assert body(db) == "new"


def test_a_lease_not_in_a_block_does_not_renew(fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1", ttl=0.3)
    assert lease.lost.wait(2)
    assert fence.acquire("report:1", wait=2).token > lease.token


def test_renewing_does_not_wait_for_the_holders_writes(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1", ttl=0.6) as lease, lease.transaction() as conn:
        conn.execute("update public.report set body = 'long' where id = 1")
        conn.execute("select pg_sleep(1.5)")  # not idle: that would be ended after the ttl
        assert not lease.lost.is_set()
    assert body(db) == "long"


def test_one_failed_renewal_loses_nothing(db: Database, proxy: Proxy) -> None:
    told: list[pyfence.Lease] = []
    with (
        pyfence.Fence(proxy.url(db.url("app"))) as fence,
        fence.lease("report:1", ttl=1.5, on_lost=told.append) as lease,
    ):
        before = lease.expires_at
        proxy.requests.hold()
        proxy.requests.wait_for_bytes()  # the first renewal's connection, or the renewal itself
        proxy.cut()
        proxy.requests.release()
        wait_until(lambda: lease.expires_at > before, "a renewal succeeds", deadline=1.5)
        assert not lease.lost.is_set()
    assert not told


def test_lost_at_the_deadline_at_the_latest(db: Database, proxy: Proxy) -> None:
    told: list[pyfence.Lease] = []
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        with holding(fence, 1.0, told.append) as lease:
            first = lease.expires_at
            wait_until(lambda: lease.expires_at > first, "it has been renewed once")
            proxy.replies.hold()
            sent = lease._state.sent
            assert lease.lost.wait(5)
            assert _clock.now() - sent <= 1.0 + 0.1
            assert db.execute("select clock_timestamp() < %s + interval '100 ms'", (lease.expires_at,)) == [(True,)]
            with pytest.raises(pyfence.LeaseLost) as caught:
                lease.raise_if_lost()
            assert caught.value.reason == "unrenewed"
            proxy.replies.release()
        wait_until(lambda: told == [lease], "on_lost was called")
        time.sleep(0.2)
        assert told == [lease]


def test_terminated_backends_lose_nothing(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1", ttl=1.2) as lease:
        assert lease.fenced_update(report, {"id": 1}, {"body": "one"}) == 1
        for round_ in range(3):
            before = lease.expires_at
            wait_until(lambda before=before: lease.expires_at > before, "renewed")
            assert terminate(db) >= 1
            assert lease.fenced_update(report, {"id": 1}, {"body": str(round_)}) == 1
            with lease.transaction() as conn:
                conn.execute("update public.report set amount = 1 where id = 1")
            lease.renew()
        assert not lease.lost.is_set()
        revoke(db)
        terminate(db)
        with pytest.raises(pyfence.StaleToken):
            lease.fenced_update(report, {"id": 1}, {"body": "stale"})
        lease._state.lost.wait(2)
        with pytest.raises(pyfence.LeaseLost):
            lease.raise_if_lost()
        lease._state._reason = "released"  # the loss is this test's doing
    assert body(db) == "2"


def test_a_read_only_server_is_waited_out(db: Database, fence: pyfence.Fence, caplog: pytest.LogCaptureFixture) -> None:
    with fence.lease("report:1", ttl=3) as lease:
        db.cluster.admin.execute(f"alter role app in database {db.name} set default_transaction_read_only = on")
        terminate(db)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            lease.renew()
        wait_until(lambda: "read-only" in caplog.text, "a renewal was refused")
        time.sleep(0.3)
        assert not lease.lost.is_set()
        before = lease.expires_at
        db.cluster.admin.execute(f"alter role app in database {db.name} reset default_transaction_read_only")
        wait_until(lambda: lease.expires_at > before, "renewed on a fresh connection", deadline=2)
        assert not lease.lost.is_set()
    assert caplog.text.count("trying again") == 1


def test_a_locked_lease_row_is_waited_out(db: Database, fence: pyfence.Fence) -> None:
    with fence.lease("report:1", ttl=1.5) as lease:
        blocker = db.connect("fence_owner")
        blocker.execute("select * from fence._lease where resource = 'report:1' for update")
        before = lease.expires_at
        time.sleep(0.7)
        assert lease.expires_at == before
        blocker.rollback()
        wait_until(lambda: lease.expires_at > before, "renewed", deadline=1)
        assert not lease.lost.is_set()


@pytest.mark.parametrize(("how", "reason"), [("revoke", "superseded"), ("supersede", "superseded")])
def test_what_the_database_says_is_final(db: Database, fence: pyfence.Fence, how: str, reason: str) -> None:
    told: list[pyfence.Lease] = []
    with pytest.raises(pyfence.LeaseLost) as caught, fence.lease("report:1", ttl=1.5, on_lost=told.append) as lease:
        revoke(db)
        if how == "supersede":
            with fence.lease("report:1", ttl=60) as newer:
                assert lease.lost.wait(1.4)
                assert not newer.lost.is_set()
        assert lease.lost.wait(1.4)
        wait_until(lambda: told == [lease], "on_lost was called")
    assert caught.value.reason == reason
    assert caught.value.token == lease.token


def test_a_manual_renewal_that_is_refused_loses_the_lease(db: Database, fence: pyfence.Fence) -> None:
    told = threading.Event()
    with pytest.raises(pyfence.LeaseLost), fence.lease("report:1", ttl=60, on_lost=lambda _: told.set()) as lease:
        revoke(db)
        with pytest.raises(pyfence.StaleToken):
            lease.renew()
        assert lease.lost.is_set()
        assert told.wait(2)


def test_a_loss_found_at_the_end_is_raised(db: Database, fence: pyfence.Fence) -> None:
    with pytest.raises(pyfence.LeaseLost), fence.lease("report:1", ttl=60):
        revoke(db)


def test_the_blocks_own_exception_is_the_one_raised(db: Database, fence: pyfence.Fence) -> None:
    mine = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught, fence.lease("report:1", ttl=60):
        revoke(db)
        raise mine
    assert caught.value is mine
    assert "superseded" in caught.value.__notes__[0]
    with pytest.raises(KeyboardInterrupt) as stopped, fence.lease("report:1", ttl=60):
        raise KeyboardInterrupt
    assert not hasattr(stopped.value, "__notes__")
    assert fence.acquire("report:1").release()


def test_a_block_may_release_by_itself(fence: pyfence.Fence) -> None:
    with fence.lease("report:1", ttl=60) as lease:
        assert lease.release()
        assert fence.acquire("report:1").release()


def test_a_release_that_fails_does_not_fail_the_block(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    with pyfence.Fence(db.url("app"), timeout=2) as fence:
        with fence.lease("report:1", ttl=60):
            db.cluster.admin.execute(f"alter database {db.name} allow_connections false")
            terminate(db)
        db.cluster.admin.execute(f"alter database {db.name} allow_connections true")
    assert "not released" in caplog.text


def test_a_frozen_server_does_not_hold_the_end_of_a_block(db: Database, proxy: Proxy) -> None:
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        start = time.monotonic()
        with holding(fence, 1.0):
            proxy.replies.hold()
        assert time.monotonic() - start < 3
        start = time.monotonic()
        proxy.replies.release()
        with holding(fence, 1.0) as lease:
            proxy.replies.hold()
            assert lease.lost.wait(2)
        assert time.monotonic() - start < 5


def test_on_lost_may_fail_and_may_take_its_time(
    db: Database, fence: pyfence.Fence, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def stubborn(lease: pyfence.Lease) -> None:
        release.wait(10)
        raise RuntimeError("on_lost is broken")

    with fence.lease("report:2", ttl=0.6) as other:
        with holding(fence, 0.6, stubborn) as lease:
            revoke(db)
            assert lease.lost.wait(2)
            assert not other.lost.wait(1.0)  # still renewed, while on_lost of the other hangs
        release.set()
        wait_until(lambda: "on_lost is broken" in caplog.text, "its exception is logged")
        assert not other.lost.wait(0.7)


def test_on_lost_may_use_the_lease(db: Database, fence: pyfence.Fence) -> None:
    answers: list[bool] = []
    with holding(fence, 0.6, lambda lease: answers.append(lease.release())):
        revoke(db)
        wait_until(lambda: answers == [False], "it was released from on_lost")


def test_ten_thousand_leases_are_one_statement_a_round(
    db: Database, fence: pyfence.Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    real = Renewer._renew

    def counted(self: Renewer, leases: list[LeaseState], timeout: float) -> list[LeaseState]:
        rounds.append(len(leases))
        return real(self, leases, timeout)

    monkeypatch.setattr(Renewer, "_renew", counted)
    db.execute("create table public.many (resource text, token bigint, secret text, expires_at timestamptz)")
    db.execute(
        """
        insert into public.many
        select a.resource, a.token, a.secret, a.expires_at
        from generate_series(1, 10000) n, fence.acquire(n::text, '1 hour') a
        """
    )
    sent = _clock.now()
    leases = []
    for resource, token, secret, expires_at in db.execute("select * from public.many"):
        grant = Grant(pyfence.Claim(resource, token, secret), "me", expires_at)
        leases.append(LeaseState(grant, ttl=3600, sent=sent))
    for lease in leases:  # as lease() does; a third of an hour is not waited for
        lease._deadline = sent + 12
        lease.watch(fence._backend.timekeeper)
    before = [lease.expires_at for lease in leases]
    for lease in leases:
        fence._renewer.add(lease)
    wait_until(lambda: all(x.expires_at > b for x, b in zip(leases, before, strict=True)), "all are renewed")
    assert sum(rounds) == 10_000
    assert len(rounds) <= 4, "scattered by chance over a sixth of a period, gathered by a twelfth"
    assert not any(lease.reason for lease in leases)
    threads = [t.name for t in threading.enumerate()]
    assert threads.count("pyfence-renewal") == 1
    assert len(backends(db)) == 1


def test_threads_end_with_the_last_lease(db: Database) -> None:
    with pyfence.Fence(db.url("app")) as fence:
        with fence.lease("report:1", ttl=0.5):
            assert any(t.name == "pyfence-renewal" for t in threading.enumerate())
        wait_until(lambda: not any(t.name == "pyfence-renewal" for t in threading.enumerate()), "the thread has ended")
        with fence.lease("report:1", ttl=0.5) as lease:
            assert not lease.lost.wait(1)


def test_closing_leaves_nothing_open(db: Database) -> None:
    fence = pyfence.Fence(db.url("app"))
    with fence.lease("report:1", ttl=5) as lease:
        with lease.transaction():
            pass
        assert backends(db)
        fence.close()
        fence.close()
    wait_until(lambda: not backends(db), "every connection is closed")
    with pytest.raises(ValueError, match="closed"):
        fence.acquire("report:2")
