"""A steady load of leases and guarded writes, everything that its clients were told, and the judge of it all.

One monotonic clock: all clients are threads of this process. Every call has a deadline of its own, because a frozen
server gives no error; what was cut off, or came with a warning, has an unknown outcome and counts as not told.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from guards.scene import Lease

CALL = 3.0  # seconds that one call may take
LEASE = 4  # seconds
REFUSED = ("LF001", "LF002", "LF004", "LF006", "LF009")


@dataclass(frozen=True)
class Grant:
    lease: Lease
    asked: float
    told: float


@dataclass(frozen=True)
class Write:
    number: int
    lease: Lease
    began: float
    told: float


@dataclass
class Log:
    """What clients were told."""

    grants: list[Grant] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def gaps(self, since: float, least: float = 0.5) -> list[float]:
        """How long nobody was told of a write, in seconds, where that was longer than `least`."""
        times = sorted(write.told for write in self.writes if write.told >= since - 1)
        return [round(b - a, 2) for a, b in itertools.pairwise(times) if b - a > least]


class Load:
    """Two clients for each resource, on connections to whoever is the primary."""

    def __init__(self, url: str, resources: int = 3) -> None:
        self.url = url
        self.resources = [f"report:{number}" for number in range(1, resources + 1)]
        self.log = Log()
        self._stop = threading.Event()
        self._numbers = iter(range(1 if resources else 10_000_000, 20_000_000))
        self._lock = threading.Lock()
        self._deadlines: dict[int, tuple[Any, float]] = {}
        names = [(resource, client) for resource in self.resources for client in range(2)]
        self._threads = [threading.Thread(target=self._client, args=name, daemon=True) for name in names]
        self._threads.append(threading.Thread(target=self._watch, daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    # -- one client ----------------------------------------------------------------------------------------------------

    def _client(self, resource: str, seed: int) -> None:
        dice = random.Random(f"{resource} {seed}")
        connection: Any = None
        old: list[Lease] = []
        while not self._stop.is_set():
            try:
                if connection is None or connection.closed:
                    connection = self.connect(self.url)
                lease = self.acquire(connection, resource)
                if lease is None:
                    self._stop.wait(dice.uniform(0.02, 0.1))
                    continue
                for _ in range(dice.randint(3, 20)):
                    self.write(connection, lease)
                    self._stop.wait(dice.uniform(0.01, 0.03))
                if dice.random() < 0.5:
                    with self._deadline(connection):
                        connection.execute("select fence.release(%s, %s, %s)", lease.parameters)
                elif old:
                    self.write(connection, dice.choice(old))  # a worker that has slept
                old = [*old[-20:], lease]
            except psycopg.Error as error:
                code = error.sqlstate or type(error).__name__
                if code in REFUSED:
                    self.log.refused[code] += 1
                    continue
                self.log.errors[code] += 1
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                connection = None
                self._stop.wait(0.05)

    def connect(self, url: str) -> Any:
        connection = psycopg.connect(url, autocommit=True, options="-c statement_timeout=2500", prepare_threshold=None)
        connection.add_notice_handler(lambda diag: self._noticed(connection))
        return connection

    def acquire(self, connection: Any, resource: str) -> Lease | None:
        asked = time.monotonic()
        with self._deadline(connection) as certain:
            statement = "select granted, token, secret from fence.acquire(%s, make_interval(secs => %s))"
            granted, token, secret = connection.execute(statement, (resource, LEASE)).fetchone()
        if not granted or not certain():
            return None
        grant = Grant(Lease(resource, token, secret), asked, time.monotonic())
        self.log.grants.append(grant)
        return grant.lease

    def write(self, connection: Any, lease: Lease) -> None:
        with self._lock:
            number = next(self._numbers)
        began = time.monotonic()
        with self._deadline(connection) as certain, connection.transaction():
            connection.execute("select fence.present(%s, %s, %s)", lease.parameters)
            connection.execute(
                "update public.report set body = %s where id = %s", (str(number), int(lease.resource[7:]))
            )
            journal = "insert into public.journal (number, resource, token) values (%s, %s, %s)"
            connection.execute(journal, (number, lease.resource, lease.token))
        if certain():
            self.log.writes.append(Write(number, lease, began, time.monotonic()))

    # -- deadlines -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _deadline(self, connection: Any) -> Iterator[Any]:
        """The call is cut off after a while. Yields whether its outcome is certain: in time, and without a warning."""
        key = id(connection)
        connection.pyfence_warned = False
        with self._lock:
            self._deadlines[key] = (connection, time.monotonic() + CALL)
        try:
            yield lambda: not connection.pyfence_warned
        finally:
            with self._lock:
                self._deadlines.pop(key, None)

    @staticmethod
    def _noticed(connection: Any) -> None:
        connection.pyfence_warned = True

    def _watch(self) -> None:
        while not self._stop.wait(0.1) or self._deadlines:
            with self._lock:
                late = [c for c, deadline in self._deadlines.values() if deadline < time.monotonic()]
                for connection in late:
                    with suppress(OSError, psycopg.Error):
                        cut = socket.socket(fileno=os.dup(connection.fileno()))
                        cut.shutdown(socket.SHUT_RDWR)
                        cut.close()


def judge(log: Log, surviving: list[tuple[int, str, int]], granted: list[tuple[str, int]]) -> dict[str, int]:
    """G1 and G2 over the whole run. `surviving`: the journal of the last primary in its order; `granted`: its history.

    G1: no token was told twice, to whomever by whichever primary, and in the surviving history they strictly increase.
    G2: no surviving write began under a token after anybody had been told of a newer one for that resource; and
    in the surviving journal the tokens of a resource never go back.
    """
    told = [(grant.lease.resource, grant.lease.token) for grant in log.grants]
    assert len(told) == len(set(told)), "a token was granted twice"
    by_resource: dict[str, list[int]] = defaultdict(list)
    for resource, token in granted:
        by_resource[resource].append(token)
    for tokens in by_resource.values():
        assert tokens == sorted(set(tokens)), "tokens of the surviving history do not increase"

    kept = {number: (resource, token) for number, resource, token in surviving}
    stale = []
    for write in log.writes:
        if write.number in kept:
            newer = [
                g for g in log.grants if g.lease.resource == write.lease.resource and g.lease.token > write.lease.token
            ]
            if any(grant.told < write.began for grant in newer):
                stale.append(write)
    assert stale == [], f"stale writes that survived: {stale}"
    last: dict[str, int] = defaultdict(int)
    for _number, resource, token in surviving:
        assert token >= last[resource], "the journal goes back to an older token"
        last[resource] = token
    history = set(granted)
    acknowledged = {write.number for write in log.writes}
    return {
        "grants told": len(told),
        "grants lost with a primary": len(set(told) - history),
        "writes told": len(acknowledged),
        "writes lost with a primary": len(acknowledged - kept.keys()),
        "writes kept": len(kept),
    }
