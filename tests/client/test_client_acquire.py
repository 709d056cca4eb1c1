"""Taking a lease, waiting for one, keeping and giving back: what the holder, the others and a late owner see."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import psycopg
import pytest
from client.support import backends, terminate
from harness import Database, wait_until
from proxy import Proxy

import pyfence
from pyfence._clock import Waiting
from pyfence._statements import Statement


def test_the_first_gets_it_and_the_second_hears_who_has_it(fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1", ttl=30, owner="worker-a")
    with pytest.raises(pyfence.LeaseHeld) as held:
        fence.acquire("report:1", owner="worker-b")
    error = held.value
    assert (error.resource, error.owner, error.token, error.reason) == ("report:1", "worker-a", lease.token, "held")
    assert error.expires_at == lease.expires_at
    assert error.expires_at is not None
    assert error.expires_at.utcoffset() is not None
    assert error.retry_in is not None
    assert timedelta(seconds=28) < error.retry_in <= timedelta(seconds=30)


def test_acquire_is_not_reentrant(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1", owner="me") as outer:
        with pytest.raises(pyfence.LeaseHeld), fence.lease("report:1", owner="me"):
            pytest.fail("the inner block ran")
        with pytest.raises(pyfence.LeaseHeld):
            fence.acquire("report:1", owner="me")
        with fence.lease("report:2", owner="me"):  # another resource is another matter
            pass
        assert outer.fenced_update(report, {"id": 1}, {"body": "still mine"}) == 1
        assert not outer.lost.is_set()
    newer = fence.acquire("report:1", owner="me")
    assert newer.token > outer.token
    with pytest.raises(pyfence.LeaseLost) as caught:
        outer.fenced_update(report, {"id": 1}, {"body": "x"})
    assert caught.value.reason == "released"
    with pytest.raises(pyfence.StaleToken), fence.transaction(outer.claim):
        pass


def test_a_wait_ends_when_the_holder_gives_up(db: Database, fence: pyfence.Fence) -> None:
    first = fence.acquire("report:1", ttl=60)
    waiter = db.in_thread(fence.acquire, "report:1", wait=15)
    wait_until(lambda: len(backends(db)) > 0 and not waiter.done(), "the waiter has asked")
    assert first.release()
    assert waiter.result(15).token > first.token


def test_a_wait_for_ever_ends_with_the_lease(fence: pyfence.Fence) -> None:
    first = fence.acquire("report:1", ttl=0.5)
    start = time.monotonic()
    second = fence.acquire("report:1", wait=None)
    assert second.token > first.token
    assert time.monotonic() - start < 3
    assert first.lost.is_set()


def test_a_wait_gives_up_in_time_and_says_who_has_it(fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1", ttl=60)
    start = time.monotonic()
    with pytest.raises(pyfence.LeaseHeld) as held:
        fence.acquire("report:1", wait=0.4)
    assert 0.4 <= time.monotonic() - start < 2
    assert held.value.token == lease.token


def test_a_wait_holds_no_connection_between_requests(db: Database, fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1", ttl=60)

    def take_turns() -> int:
        with fence.lease("report:1", wait=20) as mine:
            return mine.token

    waiters = [db.in_thread(take_turns) for _ in range(12)]
    wait_until(lambda: len(backends(db)) >= 1, "they ask")
    time.sleep(0.3)
    assert len(backends(db)) <= 4 + 1, "and one that hears when they are called"
    assert lease.release()
    assert len({waiter.result(20) for waiter in waiters}) == 12


def test_draining_is_told_from_held(db: Database, fence: pyfence.Fence, report: str) -> None:
    old = fence.acquire("report:1", ttl=1)
    with pytest.raises(pyfence.StaleToken), old.transaction() as conn:
        conn.execute("update public.report set body = 'late' where id = 1")
        conn.execute("select pg_sleep(1.1)")  # not idle: that would be ended after the ttl
        assert old.lost.is_set()
        with pytest.raises(pyfence.LeaseHeld) as held:
            fence.acquire("report:1")
        assert held.value.reason == "draining"
        assert held.value.token == old.token
        waiter = db.in_thread(fence.acquire, "report:1", wait=15)
        # The first request closed the old lease: from here on every statement of its holder is refused.
        conn.execute("update public.report set body = 'too late' where id = 1")
    new = waiter.result(15)
    assert new.token > old.token
    assert db.execute("select body from public.report where id = 1") == [("old",)]


def test_a_lost_server_ends_a_request_but_not_a_wait(db: Database, fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1", ttl=60)
    waiter = db.in_thread(fence.acquire, "report:1", wait=20)
    wait_until(lambda: len(backends(db)) > 0 and not waiter.done(), "the waiter has asked")
    time.sleep(0.1)
    db.cluster.admin.execute(f"alter database {db.name} allow_connections false")
    terminate(db)
    with pytest.raises(psycopg.OperationalError):
        fence.acquire("report:2")
    assert not waiter.done()
    db.cluster.admin.execute(f"alter database {db.name} allow_connections true")
    assert lease.release()
    assert waiter.result(20).resource == "report:1"


def test_closing_ends_a_wait(db: Database, fence: pyfence.Fence) -> None:
    fence.acquire("report:1", ttl=60)
    waiter = db.in_thread(fence.acquire, "report:1", wait=None)
    wait_until(lambda: len(backends(db)) > 0 and not waiter.done(), "the waiter has asked")
    fence.close()
    with pytest.raises(pyfence.FenceError, match="closed"):
        waiter.result(10)


def test_a_frozen_server_ends_every_call_at_its_deadline(db: Database, proxy: Proxy, report: str) -> None:
    with pyfence.Fence(proxy.url(db.url("app")), timeout=0.5) as fence:
        lease = fence.acquire("report:1", ttl=60)
        lease.fenced_update(report, {"id": 1}, {"body": "x"})
        proxy.replies.hold()
        for call in (
            lambda: fence.acquire("report:2"),
            lease.renew,
            lambda: lease.fenced_update(report, {"id": 1}, {"body": "y"}),
            lambda: lease.transaction().__enter__(),
            lease.release,
        ):
            start = time.monotonic()
            with pytest.raises((pyfence.OutcomeUnknown, psycopg.errors.ConnectionTimeout)):
                call()
            assert time.monotonic() - start < 2.5
        proxy.replies.release()
        wait_until(
            lambda: not [s for _, s in backends(db) if s == "idle in transaction"], "no transaction is left open"
        )


def test_a_call_that_the_server_can_still_cancel_changes_nothing(db: Database, report: str) -> None:
    with pyfence.Fence(db.url("app"), timeout=0.5) as fence:
        lease = fence.acquire("report:1", ttl=60)
        blocker = db.connect("outsider")
        blocker.execute("lock table public.report in access exclusive mode")
        with pytest.raises(psycopg.errors.QueryCanceled) as caught:
            lease.fenced_update(report, {"id": 1}, {"body": "x"})
        assert "pyfence" in caught.value.__notes__[0]
        blocker.rollback()
        assert db.execute("select body from public.report where id = 1") == [("old",)]
        assert lease.fenced_update(report, {"id": 1}, {"body": "y"}) == 1


def test_an_acquire_is_one_round_trip(db: Database, proxy: Proxy) -> None:
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        lease = fence.acquire("report:1")
        before = proxy.round_trips
        lease.renew()
        assert lease.release()
        for _ in range(10):
            assert fence.acquire("report:1").release()
        assert proxy.round_trips - before == 22


def test_the_local_deadline_counts_from_the_request(db: Database, proxy: Proxy) -> None:
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        fence.acquire("warm:up")
        proxy.requests.hold()
        asked = db.in_thread(fence.acquire, "report:1", ttl=1)
        proxy.requests.wait_for_bytes()
        time.sleep(0.6)
        proxy.requests.release()
        lease = asked.result(5)
        assert lease.lost.wait(0.7)
        # The database got the request later, and so believes longer than the holder.
        assert db.execute("select expires_at > clock_timestamp() from fence.leases where resource = 'report:1'") == [
            (True,)
        ]
        with pytest.raises(pyfence.LeaseLost) as lost:
            lease.raise_if_lost()
        assert lost.value.reason == "unrenewed"


@pytest.mark.parametrize("skew", [-600, 600, 3600 * 24 * 400])
def test_the_clients_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch, fence: pyfence.Fence, skew: int) -> None:
    first = fence.acquire("report:1", ttl=30)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + skew) * 1e9))
    with pytest.raises(pyfence.LeaseHeld) as held:
        fence.acquire("report:1")
    assert held.value.retry_in is not None
    assert timedelta(seconds=28) < held.value.retry_in <= timedelta(seconds=30)
    assert first.renew() > held.value.expires_at  # type: ignore[operator]
    with fence.lease("report:2", ttl=1) as lease:
        assert not lease.lost.wait(0.2)
    first.raise_if_lost()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize("other", ["UTC", "Asia/Kathmandu"])
def test_the_sessions_time_zone_does_not_matter(db: Database, zone: str, other: str) -> None:
    def there(zone: str) -> pyfence.Fence:
        return pyfence.Fence(psycopg.conninfo.make_conninfo(db.url("app"), options=f"-c timezone={zone}"))

    with there(zone) as a, there(other) as b:
        lease = a.acquire("report:1", ttl=30)
        with pytest.raises(pyfence.LeaseHeld) as held:
            b.acquire("report:1")
        assert held.value.expires_at == lease.expires_at
        assert held.value.retry_in is not None
        assert abs(held.value.retry_in.total_seconds() - 30) < 1
        ((now,),) = db.execute("select clock_timestamp()")
        assert isinstance(now, datetime)
        assert 29 < (lease.expires_at - now).total_seconds() <= 30
        short = a.acquire("report:2", ttl=0.3)
        assert b.acquire("report:2", wait=5).token > short.token


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_sessions_isolation_does_not_matter(db: Database, level: str) -> None:
    url = psycopg.conninfo.make_conninfo(
        db.url("app"), options="-c default_transaction_isolation=" + level.replace(" ", "\\ ")
    )
    with pyfence.Fence(url) as fence:
        seen = Statement("select current_setting('transaction_isolation')", ())
        assert fence._backend.calls.run(seen, timeout=5) == [("read committed",)]
        for _ in range(3):
            lease = fence.acquire("report:1")
            lease.renew()
            assert lease.release()


# -- the late owner ----------------------------------------------------------------------------------------------------


def test_a_late_owner_changes_nothing(db: Database, fence: pyfence.Fence, report: str) -> None:
    old = fence.acquire("report:1", ttl=0.2)
    new = fence.acquire("report:1", ttl=30, wait=5)
    row = db.execute("select * from fence.leases where resource = 'report:1'")
    with pytest.raises(pyfence.StaleToken):
        old.renew()
    assert old.release() is False
    assert old.release() is False
    with pytest.raises(pyfence.StaleToken):
        old.fenced_update(report, {"id": 1}, {"body": "late"})
    assert db.execute("select * from fence.leases where resource = 'report:1'") == row
    assert new.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
    assert not new.lost.is_set()


def test_an_expired_lease_is_not_revived(db: Database, fence: pyfence.Fence) -> None:
    old = fence.acquire("report:1", ttl=0.1)
    assert old.lost.wait(5)
    wait_until(
        lambda: (
            db.execute("select expires_at < clock_timestamp() from fence.leases where resource = 'report:1'")
            == [(True,)]
        ),
        "it has expired",
    )
    with pytest.raises(pyfence.LeaseExpired):
        old.renew()
    assert fence.acquire("report:1").token > old.token
    with pytest.raises(pyfence.StaleToken):
        old.renew()


def test_release_is_idempotent_and_final(fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1")
    assert lease.release() is True
    assert lease.release() is False
    assert lease.lost.is_set()
    for call in (lease.renew, lease.raise_if_lost, lease.transaction):
        with pytest.raises(pyfence.LeaseLost) as caught:
            call()
        assert caught.value.reason == "released"
        assert caught.value.token == lease.token


def test_one_lease_serves_many_threads(db: Database, fence: pyfence.Fence, report: str) -> None:
    with fence.lease("report:1", ttl=2) as lease, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> None:
            lease.renew()
            lease.fenced_update(report, {"id": 1}, {"amount": number})
            with lease.transaction() as conn:
                conn.execute("update public.report set body = body || '.' where id = 1")

        list(pool.map(work, range(40)))
        released = list(pool.map(lambda _: lease.release(), range(8)))
    assert sorted(released) == [False] * 7 + [True]
    assert db.execute("select body from public.report where id = 1") == [("old" + "." * 40,)]


def test_a_child_process_cannot_use_its_parents_lease(fence: pyfence.Fence) -> None:
    lease = fence.acquire("report:1")
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in (lease.renew, lease.release, lease.raise_if_lost, lease.transaction, lambda: lease.claim):
            try:
                call()
            except pyfence.LeaseLost as exc:
                refused += exc.reason == "forked"
        os._exit(refused)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    lease.renew()
    assert lease.release()


# -- when to ask again -------------------------------------------------------------------------------------------------


def test_waiting_follows_the_databases_advice() -> None:
    assert Waiting(0).pause(timedelta(seconds=5)) is None
    for _ in range(50):
        waiting = Waiting(None)
        soon = waiting.pause(timedelta(milliseconds=30))
        assert soon is not None
        assert 0.03 <= soon <= 0.04
        pauses = [waiting.pause(timedelta(seconds=100)) for _ in range(20)]
        assert all(p is not None and 0 < p <= 1 for p in pauses)
        assert max(p for p in pauses if p) > 0.5
        limited = Waiting(0.02).pause(timedelta(seconds=100))
        assert limited is not None
        assert limited <= 0.02
    assert len({Waiting(None).pause(None) for _ in range(20)}) > 1
