"""Cancelled at any point: no lease is held by nobody longer than its ttl, no connection stays in a transaction."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from client.support import async_source, backends, body, idle_in_transaction
from harness import Database, wait_until
from proxy import Proxy

import pyfence

TTL = 3.0  # seconds
Work = Callable[[pyfence.AsyncFence, str, str], Awaitable[object]]


async def acquire(fence: pyfence.AsyncFence, resource: str, table: str) -> None:
    lease = await fence.acquire(resource, ttl=TTL)
    try:
        await asyncio.sleep(0.001)
    finally:
        await lease.release()


async def transaction(fence: pyfence.AsyncFence, resource: str, table: str) -> None:
    async with fence.lease(resource, ttl=TTL) as lease:
        await lease.renew()
        async with lease.transaction() as conn:
            await conn.execute("select pg_sleep(0.005)")
            await conn.execute("update public.report set body = 'new' where id = 1")


async def everything(fence: pyfence.AsyncFence, resource: str, table: str) -> None:
    async with fence.lease(resource, ttl=TTL) as lease:
        await lease.renew()
        await lease.fenced_update(table, {"id": 1}, {"body": "new"})
        async with lease.transaction(isolation="SERIALIZABLE") as conn:
            await conn.execute("update public.report set body = 'newer' where id = 1")
        await lease.release()


def held(db: Database) -> int:
    ((count,),) = db.execute("select count(*) from fence.leases where state = 'held'")
    return int(count)


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
@pytest.mark.parametrize(("work", "length"), [(acquire, 0.02), (transaction, 0.06), (everything, 0.08)])
def test_cancelled_at_any_time(db: Database, proxy: Proxy, report: str, kind: str, work: Work, length: float) -> None:
    """200 random moments for each kind of source: 67 for each kind of work, 10 tasks at a time."""
    unhandled: list[dict[str, Any]] = []
    proxy.delay = 0.001
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    print(f"seed {seed}")

    async def main() -> float:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with (
            async_source(kind, proxy.url(db.url("app")), size=4) as where,
            pyfence.AsyncFence(where, timeout=5) as fence,
        ):
            await everything(fence, "report:1", report)
            cancelled = 0

            async def one(number: int) -> None:
                nonlocal cancelled
                resource = "report:1" if number % 7 == 0 else f"report:1{number:03}"
                task = asyncio.ensure_future(work(fence, resource, report))
                await asyncio.sleep(rng.uniform(0, length))
                cancelled += task.cancel()
                if rng.random() < 0.3:  # and once more, while it tidies up
                    await asyncio.sleep(rng.uniform(0, 0.005))
                    task.cancel()
                with suppress(asyncio.CancelledError, pyfence.LeaseHeld, pyfence.WrongResource):
                    await task

            for first in range(0, 67, 10):
                await asyncio.gather(*(one(n) for n in range(first, min(first + 10, 67))))
            last = time.monotonic()
            assert cancelled > 20
            if kind == "pool":
                await asyncio.wait_for(where.wait(), 5)
                while where.get_stats()["pool_available"] < 4:
                    await asyncio.sleep(0.01)
                    assert time.monotonic() - last < 5, where.get_stats()
            elif kind == "engine":
                assert where.sync_engine.pool.checkedout() == 0
            assert not fence._renewer._held
            wait_until(lambda: not idle_in_transaction(db), "no connection is in a transaction", deadline=2)
            while held(db):
                assert time.monotonic() - last < TTL + 0.5, "a lease is held by nobody"
                await asyncio.sleep(0.01)
            settled = time.monotonic() - last
            for number in (1, 1001, 1034):  # a fresh one works
                await transaction_of_own(fence, f"report:{number}")
            return settled

    async def transaction_of_own(fence: pyfence.AsyncFence, resource: str) -> None:
        async with fence.lease(resource, ttl=TTL, wait=TTL) as lease, lease.transaction():
            pass

    settled = asyncio.run(main())
    assert not unhandled
    assert settled < TTL / 2, "what was granted to a cancelled acquire is given back, not waited for"
    gc.collect()  # SQLAlchemy leaves a connection that was cancelled while it was being opened to the collector
    wait_until(lambda: not backends(db), "every connection is closed", state=db.activity)


def test_a_grant_that_nobody_heard_of_is_given_back(db: Database, proxy: Proxy) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app"))) as fence:
            assert await (await fence.acquire("report:2")).release()
            proxy.replies.hold()
            asked = asyncio.create_task(fence.acquire("report:1", ttl=60))
            await asyncio.to_thread(proxy.replies.wait_for_bytes)
            assert held(db) == 1, "it has been granted"
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            proxy.replies.release()
            await asyncio.to_thread(wait_until, lambda: held(db) == 0, "it is given back")
            assert (await fence.acquire("report:1")).token

    asyncio.run(main())


def test_a_call_that_waits_for_its_turn_is_not_made(db: Database, proxy: Proxy) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app")), timeout=2) as fence:
            leases = [await fence.acquire(f"report:{n}", ttl=60) for n in range(4)]
            proxy.requests.hold()
            busy = [asyncio.create_task(lease.renew()) for lease in leases]
            await asyncio.to_thread(proxy.requests.wait_for_bytes)
            queued = [asyncio.create_task(fence.acquire("report:9", ttl=60)) for _ in range(3)]
            await asyncio.sleep(0.01)
            queued[0].cancel()
            for task, error in zip(
                queued, [asyncio.CancelledError, *[psycopg.errors.ConnectionTimeout] * 2], strict=True
            ):
                start = time.monotonic()
                with pytest.raises(error):
                    await task
                assert time.monotonic() - start < 3
            proxy.cut()
            proxy.requests.release()
            await asyncio.gather(*busy, return_exceptions=True)
            assert db.execute("select count(*) from fence.leases where resource = 'report:9'") == [(0,)]
            assert await leases[0].release()

    asyncio.run(main())


def test_a_cancelled_release_is_finished(db: Database, proxy: Proxy) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app"))) as fence:
            for turn in range(3):
                proxy.delay = 0.02
                task = asyncio.create_task(asyncio.sleep(60))

                async def hold(task: asyncio.Task[None] = task) -> None:
                    async with fence.lease("report:1", ttl=60):
                        await task

                holder = asyncio.create_task(hold())
                await asyncio.to_thread(wait_until, lambda: held(db) == 1, "it is held")
                await asyncio.sleep(0.1)
                holder.cancel()
                await asyncio.sleep(0.005 * turn)
                holder.cancel()  # while it gives the lease back
                with pytest.raises(asyncio.CancelledError):
                    await holder
                await asyncio.to_thread(wait_until, lambda: held(db) == 0, "it is given back")

    asyncio.run(main())


def test_a_cancelled_transaction_is_rolled_back_at_once(db: Database, report: str) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence, fence.lease("report:1") as lease:

            async def work() -> None:
                async with lease.transaction() as conn:
                    await conn.execute("update public.report set body = 'half' where id = 1")
                    await conn.execute("select pg_sleep(30)")

            start = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(work(), 0.3)
            assert time.monotonic() - start < 3
            assert not idle_in_transaction(db)
            assert "active" not in [state for _, state in backends(db)]
            assert await lease.fenced_update(report, {"id": 1}, {"amount": 1}) == 1
        assert body(db) == "old"

    asyncio.run(main())
