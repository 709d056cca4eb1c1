"""The heartbeat does not depend on the event loop, nor on other threads, and does not outlive whom it is for."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import psycopg
import pytest
from client.support import backends, body
from harness import Database, wait_until
from proxy import Proxy

import pyfence
from pyfence import _clock

TTL = 0.7  # seconds


def revoke(db: Database) -> None:
    assert db.execute("select fence.revoke('report:1', 'test')") == [(True,)]


def test_a_body_that_blocks_the_loop_keeps_its_lease(db: Database, report: str) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence, fence.lease("report:1", ttl=TTL) as lease:
            time.sleep(3 * TTL)
            assert not lease.lost.is_set()
            lease.raise_if_lost()
            assert await lease.fenced_update(report, {"id": 1}, {"body": "held throughout"}) == 1

    asyncio.run(main())
    assert body(db) == "held throughout"


def test_four_threads_that_compute_keep_the_leases(db: Database, report: str) -> None:
    """A sync and an async one; the loop is blocked for as long, too."""
    ttl = 3.0

    def compute() -> None:
        end = time.monotonic() + 2 * ttl
        while time.monotonic() < end:
            sum(n * n for n in range(1000))

    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence, fence.lease("report:1", ttl=ttl) as lease:
            with pyfence.Fence(db.url("app")) as sync, sync.lease("report:2", ttl=ttl) as other:
                threads = [threading.Thread(target=compute) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                lease.raise_if_lost()
                other.raise_if_lost()
                assert await lease.fenced_update(report, {"id": 1}, {"body": "held throughout"}) == 1
                assert other.fenced_update(report, {"id": 2}, {"body": "held throughout"}) == 1

    asyncio.run(main())


def test_a_lost_lease_is_seen_by_a_blocked_loop_and_told_in_the_loop(db: Database) -> None:
    told: list[tuple[pyfence.AsyncLease, str]] = []

    async def on_lost(lease: pyfence.AsyncLease) -> None:
        await asyncio.sleep(0)
        told.append((lease, threading.current_thread().name))
        raise RuntimeError("on_lost is broken")

    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            with pytest.raises(pyfence.LeaseLost) as caught:
                async with fence.lease("report:1", ttl=TTL, on_lost=on_lost) as lease:
                    waiter = asyncio.create_task(lease.lost.wait())
                    await asyncio.sleep(0)
                    revoke(db)
                    end = time.monotonic() + 5
                    while not lease.lost.is_set():  # the loop is blocked meanwhile
                        assert time.monotonic() < end
                        time.sleep(0.01)
                    assert not waiter.done()
                    assert await asyncio.wait_for(waiter, 1) is True
                    assert await asyncio.wait_for(lease.lost.wait(), 1) is True
                    while not told:
                        await asyncio.sleep(0.01)
                    assert told == [(lease, threading.main_thread().name)]
            assert caught.value.reason == "superseded"

    asyncio.run(main())
    assert len(told) == 1


def test_an_on_lost_that_fails_is_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    def on_lost(lease: pyfence.AsyncLease) -> None:
        raise RuntimeError("on_lost is broken")

    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            with pytest.raises(pyfence.LeaseLost):
                async with fence.lease("report:1", ttl=TTL, on_lost=on_lost) as lease:
                    revoke(db)
                    await asyncio.wait_for(lease.lost.wait(), 5)
                    while "on_lost is broken" not in caplog.text:
                        await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_blocks_own_exception_is_the_one_raised(db: Database) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            with pytest.raises(ZeroDivisionError) as caught:
                async with fence.lease("report:1", ttl=60):
                    revoke(db)
                    raise ZeroDivisionError
            assert "superseded" in caught.value.__notes__[0]

    asyncio.run(main())


def test_lost_at_the_deadline_at_the_latest(db: Database, proxy: Proxy) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app"))) as fence:
            with pytest.raises(pyfence.LeaseLost) as caught:
                async with fence.lease("report:1", ttl=1.0) as lease:
                    first = lease.expires_at
                    while lease.expires_at == first:
                        await asyncio.sleep(0.01)
                    proxy.replies.hold()
                    sent = lease._state.sent
                    await asyncio.wait_for(lease.lost.wait(), 5)
                    assert _clock.now() - sent <= 1.0 + 0.2
                    assert db.execute("select clock_timestamp() < %s + interval '200 ms'", (lease.expires_at,)) == [
                        (True,)
                    ]
                    proxy.replies.release()
            assert caught.value.reason == "unrenewed"

    asyncio.run(main())


def test_a_frozen_server_ends_every_call_at_its_deadline(db: Database, proxy: Proxy, report: str) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app")), timeout=0.3) as fence:
            lease = await fence.acquire("report:1", ttl=60)
            await lease.fenced_update(report, {"id": 1}, {"body": "x"})

            async def transaction() -> None:
                async with lease.transaction():
                    pass

            async def commit() -> None:
                async with lease.transaction() as conn:
                    await conn.execute("update public.report set body = 'unknown' where id = 1")
                    proxy.replies.hold()

            for call in (commit, lambda: fence.acquire("report:2"), transaction, lease.release):
                start = time.monotonic()
                with pytest.raises((pyfence.OutcomeUnknown, psycopg.errors.ConnectionTimeout)):
                    await call()
                assert time.monotonic() - start < 2.5
            proxy.replies.release()

    asyncio.run(main())
    wait_until(lambda: not [s for _, s in backends(db) if s == "idle in transaction"], "no transaction is left open")


def held(db: Database) -> bool:
    return db.execute("select state from fence.leases") == [("held",)]


def test_a_block_that_was_dropped_with_its_loop_ends_with_its_ttl(db: Database) -> None:
    """Nobody can hold a lease in a loop that does not exist any more."""
    fence = pyfence.AsyncFence(db.url("app"))
    begun = False

    async def hold() -> None:
        nonlocal begun
        async with fence.lease("report:1", ttl=TTL):
            begun = True
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(hold())
    while not begun:
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(TTL * 1.5))
    assert held(db)
    loop.close()  # neither cancelled nor awaited
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task, loop
    gc.collect()
    wait_until(lambda: not held(db), "it has expired", deadline=TTL + 0.5)
    asyncio.run(fence.close())


def test_a_lease_that_nobody_refers_to_is_not_renewed(db: Database) -> None:
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=TTL)
        fence._renewer.add(lease._state)
        assert not lease.lost.wait(TTL * 1.5)
        del lease
        gc.collect()
        wait_until(lambda: not held(db), "it has expired", deadline=TTL + 0.5)
