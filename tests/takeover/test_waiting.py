"""`acquire(wait=...)`: woken when the lease becomes free, in the order of arrival, at a constant cost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from client.support import async_source, backends, source
from harness import SUPERUSER, Connection, Database, wait_until
from pools.pgbouncer import PROGRAM, PgBouncer

import pyfence

#: Longer than any of these tests: whoever is granted it within a test was woken.
LONG = 3600.0


@pytest.fixture
def holder(db: Database) -> Iterator[pyfence.Fence]:
    with pyfence.Fence(db.url("app")) as fence:
        yield fence


@pytest.fixture
def fence(db: Database) -> Iterator[pyfence.Fence]:
    with pyfence.Fence(db.url("app")) as fence:
        yield fence


def waiters(db: Database, *, called: bool = True) -> int:
    """How many are in the queue; `called`: only those that hear when they are called."""
    condition = "listener is not null" if called else "true"
    return int(db.execute(f"select count(*) from fence._waiter where {condition}", user="fence_owner")[0][0])


def start(db: Database, fence: pyfence.Fence, number: int = 1) -> Future[pyfence.Lease]:
    """An acquire that waits in a thread, and is the `number`th in the queue."""
    waiting = db.in_thread(fence.acquire, "report:1", ttl=LONG, wait=60)
    wait_until(lambda: waiters(db) == number, "it waits to be called")
    return waiting


def waits_for(db: Database, blocker: Connection) -> bool:
    return bool(
        db.cluster.admin.execute(
            "select from pg_stat_activity where datname = %s and %s = any (pg_blocking_pids(pid))",
            (db.name, blocker.info.backend_pid),
        ).fetchall()
    )


@pytest.mark.parametrize("end", ["release", "revoke"])
def test_a_waiter_is_woken(db: Database, holder: pyfence.Fence, fence: pyfence.Fence, end: str) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    waiting = start(db, fence)
    if end == "release":
        lease.release()
    else:
        db.execute("select fence.revoke('report:1', 'test')")
    assert waiting.result(10).token > lease.token
    assert waiters(db, called=False) == 0


def test_waiters_get_it_in_the_order_they_came(db: Database, holder: pyfence.Fence, fence: pyfence.Fence) -> None:
    """From one process and from several."""
    lease = holder.acquire("report:1", ttl=LONG)
    with pyfence.Fence(db.url("app")) as other:
        waiting = [start(db, (fence, other)[number % 2], number + 1) for number in range(6)]
        for place in waiting:
            lease.release()
            lease = place.result(10)
    tokens = [place.result().token for place in waiting]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("crowd", [25, pytest.param(100, marks=pytest.mark.stress)])
def test_a_hand_over_costs_the_same_however_many_wait(
    db: Database, holder: pyfence.Fence, fence: pyfence.Fence, crowd: int
) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    threads = ThreadPoolExecutor(crowd)
    waiting = {threads.submit(fence.acquire, "report:1", ttl=LONG, wait=60) for _ in range(crowd)}
    wait_until(lambda: waiters(db) == crowd, "they wait to be called")
    asked = [0]
    run = fence._backend.calls.run

    def counted(*args: object, **kwargs: object) -> object:
        asked[0] += 1
        return run(*args, **kwargs)  # type: ignore[arg-type]

    fence._backend.calls.run = counted  # type: ignore[method-assign,assignment]
    lease.release()
    for _ in range(crowd):
        wait_until(lambda: any(place.done() for place in waiting), "the next one has it")
        (place,) = [place for place in waiting if place.done()]
        waiting.remove(place)
        place.result().release()
    threads.shutdown()
    # for each: the request of the one that is called, that of the next one, the release
    assert asked[0] <= 4 * crowd, f"{asked[0]} calls for {crowd} hand-overs"
    assert len(backends(db)) <= 4 + 1 + 2, "their calls, the one that listens, the holder's"


_WAITER = """
import sys, pyfence
fence = pyfence.Fence(sys.argv[1])
fence.acquire("report:1", wait=60)
"""


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_waiter_that_dies_or_freezes_is_skipped(
    db: Database, holder: pyfence.Fence, fence: pyfence.Fence, fate: signal.Signals
) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    process = subprocess.Popen([sys.executable, "-c", _WAITER, db.url("app")])
    try:
        wait_until(lambda: waiters(db) == 1, "it waits to be called")
        waiting = start(db, fence, 2)
        process.send_signal(fate)
        if fate == signal.SIGKILL:
            process.wait(10)
        lease.release()
        assert waiting.result(15).token > lease.token
    finally:
        process.kill()
        process.wait()


def test_a_waiter_that_has_given_up_is_passed_over(db: Database, holder: pyfence.Fence, fence: pyfence.Fence) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    with pytest.raises(pyfence.LeaseHeld):
        fence.acquire("report:1", wait=1.5)
    waiting = start(db, fence, waiters(db, called=False) + 1)
    began = time.monotonic()
    lease.release()
    assert waiting.result(10).token > lease.token
    assert time.monotonic() - began < 10


def test_without_the_connection_that_listens_waiters_ask_by_themselves(
    db: Database, holder: pyfence.Fence, fence: pyfence.Fence
) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    waiting = start(db, fence)
    listener = fence._backend.queue.listener
    db.cluster.admin.execute("select pg_terminate_backend(%s, 10000)", (listener,))
    wait_until(lambda: fence._backend.queue.listener is None, "the client has noticed")
    lease.release()
    assert waiting.result(10).token > lease.token


def test_a_call_that_nobody_has_sent_does_no_harm(db: Database, holder: pyfence.Fence, fence: pyfence.Fence) -> None:
    """Any role may notify on any channel."""
    lease = holder.acquire("report:1", ttl=LONG)
    waiting = start(db, fence)
    listener = fence._backend.queue.listener
    forger = db.connect("outsider", autocommit=True)
    for payload in ("", "x", "-1", "12", "9" * 40, "\u0664"):
        forger.execute("select pg_notify(%s, %s)", (f"fence_{listener}", payload))
    time.sleep(0.2)
    assert not waiting.done()
    lease.release()
    assert waiting.result(10).token > lease.token


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_waiters_take_no_connection_of_a_pool(db: Database, holder: pyfence.Fence, kind: str) -> None:
    lease = holder.acquire("report:1", ttl=LONG)
    with source(kind, db.url("app"), size=1) as origin, pyfence.Fence(origin) as fence:
        waiting = start(db, fence)
        with pyfence.Fence(origin) as other, other.lease("report:2") as second, second.transaction() as conn:
            conn.execute("select 1")  # the pool's only connection
        lease.release()
        assert waiting.result(10).token > lease.token


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
def test_an_async_waiter_is_woken_and_a_cancelled_one_passed_over(
    db: Database, holder: pyfence.Fence, kind: str
) -> None:
    lease = holder.acquire("report:1", ttl=LONG)

    async def scene() -> int:
        async with async_source(kind, db.url("app"), size=1) as origin, pyfence.AsyncFence(origin) as fence:
            first = asyncio.create_task(fence.acquire("report:1", wait=60))
            await asyncio.to_thread(wait_until, lambda: waiters(db) == 1, "the first one waits")
            second = asyncio.create_task(fence.acquire("report:1", wait=None))
            await asyncio.to_thread(wait_until, lambda: waiters(db) == 2, "the second one waits")
            first.cancel()
            with suppress(asyncio.CancelledError):
                await first
            await asyncio.to_thread(lease.release)
            return (await asyncio.wait_for(second, 10)).token

    assert asyncio.run(scene()) > lease.token


def test_an_async_waiter_that_is_cancelled_while_it_asks_does_not_queue_up(db: Database, holder: pyfence.Fence) -> None:
    """It would be called when its turn comes, and keep the others waiting: nobody is there who asks."""
    holder.acquire("report:1", ttl=LONG)

    async def scene() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            with db.connect("fence_owner") as owner:
                owner.execute("lock table fence._lease")
                waiting = asyncio.create_task(fence.acquire("report:1", wait=60))
                await asyncio.to_thread(wait_until, lambda: waits_for(db, owner), "its first request is at work")
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting
                owner.rollback()
            await asyncio.to_thread(wait_until, lambda: fence._threads._idle == 1, "the request is over")
            assert waiters(db, called=False) == 0
            assert fence._backend.queue._places == set()

    asyncio.run(scene())


def test_closing_ends_a_waiting_acquire_at_once(db: Database, holder: pyfence.Fence) -> None:
    holder.acquire("report:1", ttl=LONG)
    fence = pyfence.Fence(db.url("app"))
    waiting = start(db, fence)
    fence.close()
    with pytest.raises(pyfence.FenceError, match="closed"):
        waiting.result(5)


@pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer: nothing about waiting through a pooler is shown")
def test_through_a_pooler_waiters_ask_by_themselves(db: Database, holder: pyfence.Fence) -> None:
    """What listens there would be heard by somebody else."""
    lease = holder.acquire("report:1", ttl=LONG)
    port = psycopg.conninfo.conninfo_to_dict(db.url("app"))["port"]
    with PgBouncer(int(str(port)), size=5) as bouncer, pyfence.Fence(bouncer.url(db.url("app"))) as fence:
        waiting = db.in_thread(fence.acquire, "report:1", wait=60)
        wait_until(lambda: waiters(db, called=False) == 1, "it waits")
        time.sleep(0.5)
        assert waiters(db) == 0
        assert fence._backend.queue.listener is None
        heard = "select count(*) from pg_stat_activity where query ilike 'listen%%' and datname = %s"
        assert db.execute(heard, (db.name,), user=SUPERUSER) == [(0,)]
        lease.release()
        assert waiting.result(10).token > lease.token
