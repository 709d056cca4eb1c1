"""Leases and guarded writes on three nodes under Patroni while the nodes are killed, frozen, switched and cut off."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from guards.scene import Lease
from ha.load import Load, judge
from ha.nodes import Destination, Stage
from ha.trio import TTL, Member, Trio, require_patroni
from harness import SUPERUSER

OWN = "report:4"  # a resource that the load leaves alone

pytestmark = [pytest.mark.ha, pytest.mark.timeout(900)]


@pytest.fixture(params=[True, False], ids=["synchronous", "asynchronous"])
def trio(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Trio]:
    require_patroni(stage)
    trio = Trio(stage, synchronous=request.param)
    try:
        trio.start()
        yield trio
    finally:
        trio.close()


def prepare(trio: Trio) -> None:
    with psycopg.connect(trio.url(SUPERUSER), autocommit=True) as connection:
        connection.execute("grant create, usage on schema public to app_owner")
    with psycopg.connect(trio.url("app_owner"), autocommit=True) as connection:
        connection.execute("create table public.report (id int primary key, body text)")
        connection.execute(
            "create table public.journal (id bigserial primary key, number int, resource text, token bigint)"
        )
        connection.execute("grant all on public.report, public.journal, public.journal_id_seq to app")
        connection.execute("insert into public.report select generate_series(1, 4)")
        connection.execute("select fence.protect('public.report', 'report:{id}')")


class Run:
    """The faults, one after the other, under load; each ends when there is a leader with two standbys again."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.load = Load(trio.url("app"))
        self.zombie = Load(trio.url("app"), resources=0)

    def kill_the_server(self, leader: Member) -> None:
        leader.signal(signal.SIGKILL, patroni=False)
        began = time.monotonic()
        writes = self.load.log.writes
        self.trio.wait_for(lambda: bool(writes) and writes[-1].told > began + 1, "writes go on")

    def kill_the_node(self, leader: Member) -> None:
        leader.signal(signal.SIGKILL)
        self.trio.wait_for(lambda: self.trio.leader(but=leader) is not None, "another leader")
        assert leader.process is not None
        leader.process.wait()
        leader.start()

    def switch_over(self, leader: Member) -> None:
        self.trio.switch_over(leader)

    def freeze(self, leader: Member) -> None:
        """A leader wakes up after another led, its server before its Patroni: it still takes itself for the primary."""
        destination = Destination()
        before = self.take(self.trio.url("app"))
        assert isinstance(before, Lease)
        leader.signal(signal.SIGSTOP)
        self.trio.wait_for(lambda: self.trio.leader(but=leader) is not None, "another leader")
        newer = self.until_taken()
        assert destination.write(newer.token)
        leader.signal(signal.SIGCONT, patroni=False)
        self.zombie.start()
        said = [self.take(leader.url("app")) for _ in range(4)]
        leader.signal(signal.SIGCONT, postgres=False)
        said += [self.take(leader.url("app")) for _ in range(8)]
        self.zombie.stop()
        mine = [lease for lease in said if isinstance(lease, Lease)]
        assert not any(destination.write(lease.token) for lease in mine), "the zombie is ahead of the leader"
        print(f"  the woken leader granted {len(mine)}, else said {[what for what in said if isinstance(what, str)]}")

    def lose_the_quorum(self, leader: Member) -> None:
        others = [member for member in self.trio.members.values() if member is not leader]
        for member in others:
            member.signal(signal.SIGSTOP, postgres=False)
        time.sleep(TTL + 10)
        for member in others:
            member.signal(signal.SIGCONT, postgres=False)

    def take(self, url: str) -> Lease | str:
        """A grant, a write under it and its release on the server of a URL; or what it says instead."""
        try:
            connection = self.zombie.connect(url)
            lease = self.zombie.acquire(connection, OWN)
            if lease is None:
                return "unknown or held"
            self.zombie.write(connection, lease)
            connection.execute("select fence.release(%s, %s, %s)", lease.parameters)
        except psycopg.Error as error:
            return error.sqlstate or type(error).__name__
        finally:
            time.sleep(0.2)
        return lease

    def until_taken(self) -> Lease:
        found: list[Lease] = []

        def taken() -> bool:
            lease = self.take(self.trio.url("app"))
            found.extend([lease] if isinstance(lease, Lease) else [])
            return bool(found)

        self.trio.wait_for(taken, "a grant by the new leader")
        return found[0]


def test_no_token_twice_and_no_stale_write_through_every_fault(trio: Trio) -> None:
    prepare(trio)
    run = Run(trio)
    log = run.load.log
    run.load.start()
    try:
        time.sleep(3)
        for fault in (run.kill_the_server, run.kill_the_node, run.switch_over, run.freeze, run.lose_the_quorum):
            began, leader = time.monotonic(), trio.the_leader()
            fault(leader)
            trio.healthy()
            time.sleep(2)  # some load on the new leader
            name = fault.__name__.replace("_", " ")
            print(f"{name}: {leader.name} -> {trio.the_leader().name}, write gaps {log.gaps(began)} s", flush=True)
    finally:
        run.load.stop()
    log.grants += run.zombie.log.grants
    log.writes += run.zombie.log.writes

    with psycopg.connect(trio.url("fence_owner")) as connection:
        events = connection.execute("select event, resource, token from fence.history order by id").fetchall()
    with psycopg.connect(trio.url("app_owner")) as connection:
        journal = connection.execute("select number, resource, token from public.journal order by id").fetchall()
    counts = judge(log, journal, [(resource, token) for event, resource, token in events if event == "granted"])
    lineages = sum(event == "lineage" for event, _, _ in events)
    print(counts, f"lineages begun: {lineages}", f"refused {dict(log.refused)}", f"errors {dict(log.errors)}", sep="\n")
    assert counts["writes told"] > 100
    assert log.refused["LF001"] > 0, "some worker has slept too long"
    assert lineages >= 3
    if trio.synchronous:
        assert counts["writes lost with a primary"] == counts["grants lost with a primary"] == 0
