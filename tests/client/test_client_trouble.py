"""Trouble on the way to the server: nobody believes what it was not told, and what is over is not given up for."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from client.support import async_source, backends, body, idle_in_transaction, source, terminate
from harness import Database, wait_until
from proxy import Proxy
from psycopg.conninfo import make_conninfo

import pyfence


def read_only(db: Database, value: str | None) -> None:
    """For new sessions of the application."""
    what = "reset default_transaction_read_only" if value is None else f"set default_transaction_read_only = {value}"
    db.cluster.admin.execute(f"alter role app in database {db.name} {what}")


def several_hosts(db: Database, *proxies: Proxy, **settings: Any) -> str:
    ports = ",".join(str(proxy.port) for proxy in proxies)
    return make_conninfo(db.url("app"), host=",".join(["127.0.0.1"] * len(proxies)), port=ports, **settings)


# -- an acquire whose answer was lost ----------------------------------------------------------------------------------


def test_a_grant_whose_answer_was_lost_ages_out(db: Database, proxy: Proxy) -> None:
    with pyfence.Fence(proxy.url(db.url("app"))) as fence:
        assert fence.acquire("warm:up").release()
        proxy.replies.hold()
        asked = db.in_thread(fence.acquire, "report:1", ttl=1)
        proxy.replies.wait_for_bytes()
        ((lost_token,),) = db.execute("select token from fence.leases where resource = 'report:1' and state = 'held'")
        proxy.cut()
        proxy.replies.release()
        with pytest.raises(psycopg.OperationalError):
            asked.result(10)
        assert not fence._renewer._held
        with pytest.raises(pyfence.LeaseHeld) as held:
            fence.acquire("report:1")
        assert held.value.token == lost_token
        start = time.monotonic()
        assert fence.acquire("report:1", wait=5).token > lost_token
        assert time.monotonic() - start < 2


def test_a_grant_whose_answer_was_lost_ages_out_async(db: Database, proxy: Proxy) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(proxy.url(db.url("app")), timeout=0.4) as fence:
            assert await (await fence.acquire("warm:up")).release()
            proxy.replies.hold()
            with pytest.raises(pyfence.OutcomeUnknown):
                await fence.acquire("report:1", ttl=2)
            proxy.replies.release()
            ((lost_token,),) = db.execute("select token from fence.leases where resource = 'report:1'")
            assert (await fence.acquire("report:1", wait=5)).token > lost_token

    asyncio.run(main())


# -- servers that take no writes, or none at all -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
def test_a_read_only_server_is_left(db: Database, report: str, kind: str) -> None:
    """Sessions stay as they began: who stays on one, stays read-only. So nobody does."""
    with source(kind, db.url("app"), size=1) as where, pyfence.Fence(where) as fence:
        lease = fence.acquire("report:1", ttl=60)
        other = fence.acquire("report:2", ttl=60)
        read_only(db, "on")
        terminate(db)
        for call in (lease.renew, lambda: fence.acquire("report:3")):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                call()
        for _ in range(3):  # a pool may have connections that were ended; how it finds out is its own affair
            with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, psycopg.OperationalError)) as caught:
                lease.fenced_update(report, {"id": 1}, {"body": "x"})
        assert isinstance(caught.value, psycopg.errors.ReadOnlySqlTransaction)
        read_only(db, None)
        lease.renew()
        if kind == "pool":  # it has opened the next connection in advance, while sessions began as read-only
            with suppress(psycopg.errors.ReadOnlySqlTransaction):
                lease.fenced_update(report, {"id": 1}, {"body": "new"})
        assert lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'newer' where id = 1")
        assert other.release()
    assert body(db) == "newer"


def test_calls_do_not_stay_on_a_server_that_has_become_read_only(db: Database) -> None:
    """Without a single failed call: a refusal as read-only has changed nothing, and another connection may do."""
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=60)
        (idle,) = fence._backend.calls._idle._idle
        idle.execute("set default_transaction_read_only = on")
        lease.renew()
        assert idle.closed
        assert lease.release()


@pytest.mark.parametrize("kind", ["url", "pool", "engine"])
def test_a_read_only_server_is_left_async(db: Database, report: str, kind: str) -> None:
    async def main() -> None:
        async with async_source(kind, db.url("app"), size=1) as where, pyfence.AsyncFence(where) as fence:
            lease = await fence.acquire("report:1", ttl=60)
            async with lease.transaction():
                pass
            read_only(db, "on")
            await asyncio.to_thread(terminate, db)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await lease.renew()
            for _ in range(3):
                with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, psycopg.OperationalError)) as caught:
                    await lease.fenced_update(report, {"id": 1}, {"body": "x"})
            assert isinstance(caught.value, psycopg.errors.ReadOnlySqlTransaction)
            read_only(db, None)
            await lease.renew()
            if kind == "pool":
                with suppress(psycopg.errors.ReadOnlySqlTransaction):
                    await lease.fenced_update(report, {"id": 1}, {"body": "new"})
            assert await lease.fenced_update(report, {"id": 1}, {"body": "new"}) == 1

    asyncio.run(main())
    assert body(db) == "new"


def test_a_wait_outlasts_a_read_only_server(db: Database) -> None:
    async def main() -> None:
        async with pyfence.AsyncFence(db.url("app")) as fence:
            lease, other = await fence.acquire("report:1", ttl=60), await fence.acquire("report:2", ttl=60)
            with pyfence.Fence(db.url("app")) as sync:
                waiters = [
                    asyncio.create_task(fence.acquire("report:1", wait=20)),
                    asyncio.create_task(asyncio.to_thread(sync.acquire, "report:2", wait=20)),
                ]
                await asyncio.sleep(0.3)
                read_only(db, "on")
                await asyncio.to_thread(terminate, db)
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    await lease.renew()
                await asyncio.sleep(0.5)
                assert not any(waiter.done() for waiter in waiters)
                read_only(db, None)
                assert await lease.release()
                assert await other.release()
                assert [lease.resource for lease in await asyncio.gather(*waiters)] == ["report:1", "report:2"]

    asyncio.run(main())


def test_a_holder_that_freezes_before_its_first_statement_is_ended(db: Database) -> None:
    """What comes last before the pause must not keep the server from looking at its clock."""
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=0.5)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout), lease.transaction():
            wait_until(lambda: not idle_in_transaction(db), "the server has ended it", deadline=5)

        async def main() -> None:
            async with pyfence.AsyncFence(db.url("app")) as other:
                lease = await other.acquire("report:2", ttl=0.5)
                with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                    async with lease.transaction():
                        wait_until(lambda: not idle_in_transaction(db), "the server has ended it", deadline=5)

        asyncio.run(main())


def test_sessions_that_the_server_ends_for_idling(db: Database, report: str) -> None:
    """Case: the session goes, the lease does not. Nothing of a lease is tied to a session."""
    url = make_conninfo(db.url("app"), options="-c idle_session_timeout=150")

    async def main() -> None:
        async with pyfence.AsyncFence(url) as fence, fence.lease("report:2", ttl=1.2) as lease:
            for turn in range(3):
                await asyncio.to_thread(
                    wait_until, lambda: not backends(db), "the server has ended every session", state=db.activity
                )
                assert await lease.fenced_update(report, {"id": 2}, {"body": str(turn)}) == 1
            lease.raise_if_lost()

    with pyfence.Fence(url) as fence, fence.lease("report:1", ttl=60) as lease:
        lease.fenced_update(report, {"id": 1}, {"body": "one"})
        asyncio.run(main())
        wait_until(lambda: not backends(db), "the server has ended every session")
        assert lease.renew() > lease.expires_at.min.replace(tzinfo=lease.expires_at.tzinfo)
        assert lease.fenced_update(report, {"id": 1}, {"body": "two"}) == 1
    assert (body(db), body(db, 2)) == ("two", "2")


# -- several hosts -----------------------------------------------------------------------------------------------------


def test_the_next_host_is_tried(db: Database, proxy: Proxy, report: str) -> None:
    told: list[object] = []
    with (
        Proxy(db.cluster.server.settings["port"]) as second,
        pyfence.Fence(several_hosts(db, proxy, second)) as fence,
        fence.lease("report:1", ttl=1.5, on_lost=told.append) as lease,
    ):
        assert lease.fenced_update(report, {"id": 1}, {"body": "first"}) == 1
        assert second.round_trips == 0
        proxy.close()
        before = lease.expires_at
        wait_until(lambda: lease.expires_at > before, "renewed over the second host", deadline=1.5)
        assert lease.fenced_update(report, {"id": 1}, {"body": "second"}) == 1
        assert second.round_trips > 0
    assert not told
    assert body(db) == "second"


def test_what_is_given_is_kept_and_what_is_not_is_chosen_for_writing() -> None:
    from pyfence._connect import settings_of

    one = settings_of("postgresql://a/app")
    assert "target_session_attrs" not in one
    assert one["connect_timeout"] == 10
    several = settings_of("postgresql://a,b/app")
    assert (several["target_session_attrs"], several["connect_timeout"]) == ("read-write", 3)
    given = settings_of("postgresql://a,b/app?target_session_attrs=any&connect_timeout=7&keepalives=0")
    assert (given["target_session_attrs"], given["connect_timeout"]) == ("any", "7")
    assert "keepalives_idle" not in given


def test_libpqs_variables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyfence._connect import settings_of

    monkeypatch.setenv("PGHOST", "a,b")
    assert settings_of("dbname=app")["target_session_attrs"] == "read-write"
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    assert not {"target_session_attrs", "connect_timeout"}.intersection(settings_of("dbname=app"))
