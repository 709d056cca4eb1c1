"""How processes end and multiply with leases in their hands, for both clients."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
from client.support import backends, body
from harness import Database, wait_until

import pyfence

START = "import asyncio, atexit, os, signal, sys, threading, time, pyfence\nurl = {url!r}\n"


def script(db: Database, text: str) -> list[str]:
    return [sys.executable, "-X", "dev", "-c", START.format(url=db.url("app")) + textwrap.dedent(text)]


def run(db: Database, text: str) -> tuple[int, str, str]:
    done = subprocess.run(script(db, text), capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr


def leases(db: Database) -> dict[str, str]:
    return dict(db.execute("select resource, state from fence.leases"))


# -- ends --------------------------------------------------------------------------------------------------------------

SYNC_HOLDER = """
    with pyfence.Fence(url) as fence, fence.lease("report:1", ttl=60):
        print("in", flush=True)
        time.sleep(30)
"""
ASYNC_HOLDER = """
    async def main():
        async with pyfence.AsyncFence(url) as fence, fence.lease("report:1", ttl=60):
            print("in", flush=True)
            await asyncio.sleep(30)
    asyncio.run(main())
"""
ON_TERM = """
    def stop(number, frame):
        sys.exit(143)
    signal.signal(signal.SIGTERM, stop)
"""
ASYNC_ON_TERM = """
    async def main():
        task = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with pyfence.AsyncFence(url) as fence, fence.lease("report:1", ttl=60):
            print("in", flush=True)
            await asyncio.sleep(30)
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        sys.exit(143)
"""


@pytest.mark.parametrize(
    ("text", "how", "code"),
    [
        pytest.param(SYNC_HOLDER, signal.SIGINT, None, id="sync, SIGINT"),
        pytest.param(ASYNC_HOLDER, signal.SIGINT, None, id="async, SIGINT"),
        pytest.param(ON_TERM + SYNC_HOLDER, signal.SIGTERM, 143, id="sync, SIGTERM handled"),
        pytest.param(ASYNC_ON_TERM, signal.SIGTERM, 143, id="async, SIGTERM handled"),
    ],
)
def test_a_process_that_is_asked_to_end_gives_its_lease_back(db: Database, text: str, how: Any, code: int) -> None:
    with subprocess.Popen(script(db, text), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(how)
        assert process.wait(15) in ((1, -signal.SIGINT, 130) if code is None else (code,))
    assert leases(db) == {"report:1": "closed"}


def test_sigterm_without_a_handler_ends_the_process_and_the_lease_with_its_ttl(db: Database) -> None:
    text = SYNC_HOLDER.replace("ttl=60", "ttl=1.5")
    with subprocess.Popen(script(db, text), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
    start = time.monotonic()
    with pyfence.Fence(db.url("app")) as fence:
        fence.acquire("report:1", wait=5)
    assert time.monotonic() - start < 2.5


ENDS = {
    "an open block, renewing": """
        fence = pyfence.AsyncFence(url)
        async def main():
            block = fence.lease("report:1", ttl=0.6)
            await block.__aenter__()
            await asyncio.sleep(0.5)
            print("end")
        asyncio.run(main())
    """,
    "a task that still holds": """
        async def hold(fence):
            async with fence.lease("report:1", ttl=60):
                await asyncio.sleep(60)
        async def main():
            task = asyncio.create_task(hold(pyfence.AsyncFence(url)))
            await asyncio.sleep(0.3)
            print("end")
        asyncio.run(main())
    """,
    "at exit": """
        fence = pyfence.AsyncFence(url)
        lease = asyncio.run(fence.acquire("report:1"))
        atexit.register(lambda: print("end") if asyncio.run(lease.release()) else None)
    """,
    "at exit, sync, while another renews": """
        fence = pyfence.Fence(url)
        block = fence.lease("report:2", ttl=0.6)
        block.__enter__()
        lease = fence.acquire("report:1")
        atexit.register(lambda: print("end") if lease.release() else None)
    """,
}


@pytest.mark.parametrize("how", list(ENDS))
def test_the_interpreter_ends_in_silence_and_in_time(db: Database, how: str) -> None:
    start = time.monotonic()
    code, out, err = run(db, ENDS[how])
    assert (code, out) == (0, "end\n")
    assert "Exception" not in err
    assert "Error" not in err
    assert time.monotonic() - start < 15
    assert leases(db)["report:1"] == "closed"


# -- and multiplies ----------------------------------------------------------------------------------------------------


def in_child(fence: Any, lease: Any, answers: Any) -> None:
    """What a child can do with its parent's objects."""
    try:
        answers.put(lease.claim.token)
    except pyfence.LeaseLost as exc:
        answers.put(exc.reason)
    if isinstance(fence, pyfence.Fence):
        with fence.lease("report:2", ttl=0.6) as own:
            lost = own.lost.wait(0.8)
            answers.put("lost" if lost else own.fenced_update("public.report", {"id": 2}, {"body": "child"}))
        return

    async def main() -> None:
        async with fence.lease("report:2", ttl=0.6) as own:
            await asyncio.sleep(0.8)
            answers.put(await own.fenced_update("public.report", {"id": 2}, {"body": "child"}))

    asyncio.run(main())


def test_a_forked_process_starts_afresh(db: Database, report: str) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with pyfence.Fence(db.url("app")) as fence, fence.lease("report:1", ttl=0.9) as lease:
        child = context.Process(target=in_child, args=(fence, lease, answers))
        child.start()
        assert [answers.get(timeout=20), answers.get(timeout=20)] == ["forked", 1]
        child.join(20)
        assert child.exitcode == 0
        lease.raise_if_lost()
        assert lease.fenced_update(report, {"id": 1}, {"body": "parent"}) == 1
    assert (body(db), body(db, 2)) == ("parent", "child")


def test_a_process_forked_in_a_running_loop_starts_afresh(db: Database, report: str) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    async def main() -> None:
        async with (
            pyfence.AsyncFence(db.url("app")) as fence,
            fence.lease("report:1", ttl=0.9) as lease,
            fence.lease("report:3", ttl=60) as other,  # a transaction may be idle for as long as its ttl
        ):
            async with other.transaction() as conn:
                await conn.execute("update public.report set body = 'parent' where id = 3")
                child = context.Process(target=in_child, args=(fence, lease, answers))
                child.start()
                assert [answers.get(timeout=20), answers.get(timeout=20)] == ["forked", 1]  # blocks the loop
                child.join(20)
            lease.raise_if_lost()

    asyncio.run(main())
    assert (body(db, 3), body(db, 2)) == ("parent", "child")
    wait_until(lambda: not backends(db), "nothing is left open")


def test_nothing_is_carried_to_another_process_by_copying_it(db: Database) -> None:
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1")
        for value in (fence, lease, lease.claim):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(value)
        process = multiprocessing.get_context("spawn").Process(target=print, args=(lease,))
        with pytest.raises(TypeError, match="belongs to the process"):
            process.start()

    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            for value in (fence, await fence.acquire("report:2")):
                with pytest.raises(TypeError, match="cannot be pickled"):
                    pickle.dumps(value)

    asyncio.run(main())
