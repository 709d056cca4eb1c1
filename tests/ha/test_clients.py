"""The Python clients while servers restart, crash, freeze and hand over: bounded, and never believing too long."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from ha.nodes import Node, Stage
from harness import wait_until
from proxy import Proxy
from psycopg.conninfo import make_conninfo

import pyfence

TTL = 12.0  # seconds


def url(*ports: int, **settings: object) -> str:
    """The application's URL over several hosts, in that order."""
    hosts = ",".join(["127.0.0.1"] * len(ports))
    return make_conninfo("", user="app", dbname="app", host=hosts, port=",".join(map(str, ports)), **settings)


def in_time(call: Callable[[], pyfence.Lease], within: float) -> pyfence.Lease:
    """What `call` gives, tried again while the server is in trouble."""
    start = time.monotonic()
    while True:
        try:
            return call()
        except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction, pyfence.OutcomeUnknown):
            assert time.monotonic() - start < within, "not recovered in time"
            time.sleep(0.05)


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """Every process of the server stands still: connections stay open, and nothing answers."""
    assert node.process is not None
    pids = [node.process.pid, *node.children()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.ha
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_restart_loses_no_lease(primary: Node, how: str) -> None:
    told: list[object] = []

    async def main(fence: pyfence.AsyncFence, sync: pyfence.Lease) -> None:
        async with fence.lease("report:2", ttl=TTL, on_lost=told.append) as lease:
            waiting = asyncio.create_task(fence.acquire("report:1", wait=60))
            await asyncio.sleep(0.2)
            before = lease.expires_at, sync.expires_at
            await asyncio.to_thread(primary.stop if how == "restart" else primary.kill)
            await asyncio.sleep(0.5)
            with pytest.raises(psycopg.OperationalError):
                await lease.renew()
            await asyncio.to_thread(primary.start)
            proxy.lead_to(primary.port)
            assert not waiting.done()
            while lease.expires_at == before[0] or sync.expires_at == before[1]:
                await asyncio.sleep(0.05)
                assert not lease.lost.is_set()
                assert not sync.lost.is_set()
            assert await asyncio.to_thread(sync.release)
            assert (await waiting).token > sync.token

    with (
        Proxy(primary.port) as proxy,
        pyfence.Fence(url(proxy.port)) as fence,
        fence.lease("report:1", ttl=TTL, on_lost=told.append) as lease,
    ):
        asyncio.run(main(pyfence.AsyncFence(url(proxy.port)), lease))
    assert not told


@contextmanager
def out_of_service(node: Node, how: str) -> Iterator[None]:
    if how == "frozen":
        with frozen(node):
            yield
    else:
        node.stop() if how == "stopped" else node.kill()
        yield


@pytest.mark.ha
@pytest.mark.parametrize("how", ["stopped", "killed", "frozen"])
def test_a_failover_is_followed_and_its_lost_leases_are_known(stage: Stage, primary: Node, how: str) -> None:
    """The leases of the old lineage are lost, by the database's word; new ones are granted by the new primary."""
    standby = primary.standby("standby")

    async def main(fence: pyfence.AsyncFence, sync: pyfence.Fence) -> None:
        leases = [await fence.acquire("report:1", ttl=TTL), sync.acquire("report:2", ttl=TTL)]
        for client, lease in zip((fence, sync), leases, strict=True):
            client._renewer.add(lease._state)  # as lease() does, whose end would raise the loss
        standby.catch_up(primary)
        start = time.monotonic()
        with out_of_service(primary, how):
            with pytest.raises((psycopg.OperationalError, pyfence.OutcomeUnknown)):
                await leases[0].renew()
            assert time.monotonic() - start < 6
            standby.promote()
            for lease in leases:
                wait_until(lease.lost.is_set, "it is lost")
            assert time.monotonic() - start < TTL + 1
            newer = in_time(lambda: sync.acquire("report:1", wait=TTL), TTL)
            assert newer.token > leases[0].token
            async with fence.lease("report:2", wait=TTL) as again, again.transaction() as conn:
                assert again.token > leases[1].token
                assert await (await conn.execute("show cluster_name")).fetchone() == ("standby",)
            with pytest.raises(pyfence.StaleToken):
                await leases[0].renew()

    # Where the standby stands first, it is passed over while it takes no writes.
    one, other = url(standby.port, primary.port), url(primary.port, standby.port, connect_timeout=2)
    with pyfence.Fence(one, timeout=4) as sync:
        asyncio.run(main(pyfence.AsyncFence(other, timeout=4), sync))
