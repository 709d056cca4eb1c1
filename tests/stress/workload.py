"""Many writers, heartbeats, takeovers, revocations, releases, unaware jobs and VACUUM, all at once, at random.

Nothing here is ordered, and nothing here judges: the history does (stress.checker). A writer attacks itself: between
two steps of a transaction, it tries to have the lease taken over by somebody else: that is when it would hurt.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from guards.scene import Lease, forge
from harness import Connection, Database
from stress import tables
from stress.tables import Write

#: What a refused or beaten writer may be told; anything else is a finding.
EXPECTED = {
    "LF001": "superseded or closed",
    "LF002": "expired",
    "LF004": "no claim",
    "LF005": "claim does not cover the row",
    "LF006": "not the holder",
    "LF007": "applied already",
    "LF008": "sequence went backwards",
    "LF010": "the covering lease, asked for above READ COMMITTED",
    "40001": "the snapshot is too old",
    "40P01": "deadlock between rows",
    "55P03": "a lock was not available in time",
    "25P02": "the transaction has failed before",
    "23505": "another writer made the row",
    "57014": "statement_timeout",
    "25P03": "idle in transaction for longer than the ttl",
}
EXPIRE = """
update fence._lease set expires_at = clock_timestamp() - interval '1 ms' where resource = %s returning 1
"""
LEVELS = list(psycopg.IsolationLevel)[1:]
_GONE = (psycopg.errors.AdminShutdown, psycopg.errors.IdleInTransactionSessionTimeout)


class Book:
    """The leases that were granted, newest last: writers use the old ones too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[str, deque[Lease]] = defaultdict(lambda: deque(maxlen=5))

    def add(self, lease: Lease) -> None:
        with self._lock:
            leases = self._leases[lease.resource]
            leases.append(lease)
            if len(leases) > 1 and leases[-2].token > lease.token:  # the other's answer came first
                leases[-1], leases[-2] = leases[-2], leases[-1]

    def pick(self, resource: str, choose: random.Random, *, old: float = 0.0) -> Lease | None:
        """The newest lease, or with the probability `old` any earlier one."""
        with self._lock:
            leases = self._leases[resource]
            if not leases:
                return None
            return choose.choice(leases) if choose.random() < old else leases[-1]

    def names(self) -> list[str]:
        with self._lock:
            return list(self._leases)


@dataclass
class Tally:
    """What the actors met, besides what the history tells."""

    errors: Counter[str]
    surprises: list[str]
    committed: int = 0


class Workload:
    """The actors on one database. `run()` lets them loose until told to stop."""

    def __init__(self, db: Database, seed: int, writers: int = 6) -> None:
        self.db = db
        self.seed = seed
        self.book = Book()
        self.tally = Tally(Counter(), [])
        self._stop = threading.Event()
        self._writers = writers
        self._numbers = iter(range(1, 1 << 62))
        #: What the writers did, by the number of each claim: what a violation's transaction is explained with.
        self.traces: dict[int, list[str]] = {}

    def run(self, until: Callable[[], bool], seconds: float, every: float = 0.25) -> None:
        """Until `until()`, asked every now and then, says so, or the seconds are over."""
        end = time.monotonic() + seconds
        actors = [self.db.in_thread(self._loop, Writer(self, number).act) for number in range(self._writers)]
        for act in (Heart(self).act, Unaware(self).act, Vacuum(self).act, *Rivals.pair(self)):
            actors.append(self.db.in_thread(self._loop, act))
        try:
            while time.monotonic() < end and not any(actor.done() for actor in actors) and not until():
                self._stop.wait(every)
        finally:
            self._stop.set()
            for actor in actors:
                actor.result(60)

    def choose(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def next_number(self) -> int:
        """For the writes that are numbered; `next` on a range iterator is one step of the interpreter."""
        return next(self._numbers)

    def note(self, error: psycopg.Error) -> None:
        """Count what a writer was told; keep what it should not have been told."""
        code = error.sqlstate or ("25P03" if "server closed the connection" in str(error) else type(error).__name__)
        self.tally.errors[code] += 1
        if code not in EXPECTED and not isinstance(error, _GONE):
            self.tally.surprises.append(f"{code}: {error}")

    def _loop(self, act: Callable[[], None]) -> None:
        while not self._stop.is_set():
            act()


class Actor:
    """Somebody with connections, made when needed and again when the server has ended one."""

    name = "actor"

    def __init__(self, workload: Workload, number: int = 0) -> None:
        self.workload = workload
        self.book = workload.book
        self.choose = workload.choose(f"{self.name} {number}")
        self._connections: dict[str, Connection] = {}

    def connection(self, purpose: str, user: str = "app", *, autocommit: bool = True) -> Connection:
        found = self._connections.get(purpose)
        if found is None or found.closed:
            level = self.choose.choice(LEVELS).name.lower().replace("_", "\\ ")
            options = f"-c lock_timeout=300ms -c statement_timeout=20s -c default_transaction_isolation={level}"
            found = self.workload.db.connect(user, autocommit=autocommit, options=options)
            self._connections[purpose] = found
        return found

    @property
    def side(self) -> Connection:
        """For everything that is no write: one connection, of a role that may do all of it; each has to warm up."""
        return self.connection("side", "fence_owner")

    def try_(self, connection: Connection, statement: str, values: Iterable[object] = ()) -> list[tuple[object, ...]]:
        """One statement, committed; no rows where it was refused."""
        try:
            return connection.execute(statement, tuple(values)).fetchall()
        except psycopg.Error as error:
            self.workload.note(error)
            return []

    def note(self, step: str) -> None:
        """For those who keep a record of what they do."""

    def take_over(self, resource: str) -> None:
        """End the lease in one of the ways there are, and ask for it."""
        self.note(f"take over {resource}")
        how = self.choose.random()
        if how < 0.5:
            self.try_(self.side, EXPIRE, (resource,))
        elif how < 0.65:
            self.try_(self.side, "select fence.revoke(%s, 'stress')", (resource,))
        elif how < 0.8 and (lease := self.book.pick(resource, self.choose)):
            self.try_(self.side, "select fence.release(%s, %s, %s)", lease.parameters)
        ttl = self.choose.choice(("200 ms", "2 s", "1 min", "1 min"))
        for _ in range(2):  # the first request may only close it
            ask = "select granted, token, secret from fence.acquire(%s, %s)"
            for granted, token, secret in self.try_(self.side, ask, (resource, ttl)):
                self.note(f"granted {token}" if granted else "not granted")
                if granted:
                    self.book.add(Lease(resource, int(str(token)), str(secret)))
                    return


class Writer(Actor):
    """Presents claims, current and old, and writes: at every level, in savepoints, prepared, rolled back."""

    name = "writer"
    trace: list[str]

    def note(self, step: str) -> None:
        self.trace.append(step)

    def act(self) -> None:
        connection = self.connection("write", autocommit=False)
        level = self.choose.choice(LEVELS)
        connection.isolation_level = level
        self.trace = [level.name]
        try:
            self._transaction(connection)
        except psycopg.Error as error:
            self.note(f"ended by {error.sqlstate}")
            self.workload.note(error)
            with suppress(psycopg.Error):  # the server may have ended it just now
                connection.rollback()

    def _transaction(self, connection: Connection) -> None:
        writes = [tables.choose_write(self.choose, self.workload.db.cluster.version) for _ in range(self._few())]
        names = sorted({name for write in writes for name in write.resources})
        for name in names:
            if self.book.pick(name, self.choose) is None or self.choose.random() < 0.03:
                self.take_over(name)
        if self.choose.random() < 0.3:  # a snapshot that is older than what follows
            connection.execute("select 1 from public.whole limit 1")
            self.note("snapshot")
            self._maybe(0.5, lambda: self.take_over(self.choose.choice(names)))
        presented: set[str] = set()
        for write in writes:
            savepoint = self.choose.random()
            if savepoint < 0.6:
                self._step(connection, write, presented)
                continue
            connection.execute("savepoint s")
            self.note("savepoint")
            before = set(presented)
            try:
                self._step(connection, write, presented)
                back = savepoint > 0.8
            except psycopg.errors.DatabaseError as error:
                if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
                    raise
                self.workload.note(error)
                self.note(f"{error.sqlstate}")
                back = True
            self.note("rollback to savepoint" if back else "release savepoint")
            connection.execute("rollback to savepoint s" if back else "release savepoint s")
            if back:
                presented.clear()
                presented.update(before)
            self._maybe(0.2, lambda: self.take_over(self.choose.choice(names)))
        self._maybe(0.25, lambda: self.take_over(self.choose.choice(names)))
        self._end(connection)

    def _few(self) -> int:
        return self.choose.choice((1, 1, 1, 2, 3))

    def _maybe(self, probability: float, call: Callable[[], None]) -> None:
        if self.choose.random() < probability:
            call()

    def _step(self, connection: Connection, write: Write, presented: set[str]) -> None:
        names = [name for name in sorted(write.resources) if name not in presented]
        if len(write.resources) > 1 and self.choose.random() < 0.1:
            names = names[1:]  # one claim too few
        leases = [lease for name in names if (lease := self.book.pick(name, self.choose, old=0.15))]
        self._show(connection, leases)
        presented.update(lease.resource for lease in leases)
        self._maybe(0.15, lambda: self.take_over(self.choose.choice(sorted(write.resources))))
        for _ in range(self.choose.choice((1, 1, 2))):
            self.note(f"{write.statement} {write.values}")
            write.run(connection)

    def _show(self, connection: Connection, leases: list[Lease]) -> None:
        """Present the claims, in one of the ways; or put them where present would, which leaves it all to the guard."""
        if not leases:
            return
        number = self.workload.next_number()
        how = self.choose.random()
        self.workload.traces[number] = self.trace
        means = "invent" if how < 0.05 else "forge" if how < 0.15 else "present_all" if how < 0.5 else "present"
        self.note(f"{means} {[(lease.resource, lease.token) for lease in leases]}")
        if how < 0.05:  # right in form, and proves nothing: if it is believed, a row changes that nobody has claimed
            forge(connection, *[Lease(lease.resource, lease.token, "0" * 32) for lease in leases])
            return
        if how < 0.15:
            forge(connection, *leases)
        elif how < 0.5:
            connection.execute(
                "select fence.present_all(%s, %s, %s, %s)",
                (
                    [lease.resource for lease in leases],
                    [lease.token for lease in leases],
                    [lease.secret for lease in leases],
                    [number] * len(leases),
                ),
            )
        else:
            for lease in leases:
                connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, number))
        for lease in leases:
            connection.execute("insert into public.claimed values (%s, %s, %s)", (lease.resource, lease.token, number))

    def _end(self, connection: Connection) -> None:
        how = self.choose.random()
        if how < 0.1:
            connection.rollback()
            return
        self.note("prepare" if how > 0.95 else "commit")
        if how > 0.95 and connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
            self._prepare(connection)
        else:
            connection.commit()
        self.workload.tally.committed += 1

    def _prepare(self, connection: Connection) -> None:
        """In two phases: what stands between them is as good as open."""
        name = f"stress-{self.workload.next_number()}"
        connection.execute(f"prepare transaction '{name}'")
        connection.rollback()  # the driver's own idea of a transaction
        self.take_over(self.choose.choice(self.book.names()))
        connection.autocommit = True
        connection.execute(f"{'commit' if self.choose.random() < 0.7 else 'rollback'} prepared '{name}'")
        connection.autocommit = False


class Heart(Actor):
    """Renews whatever is there, one by one and all at once."""

    name = "heart"

    def act(self) -> None:
        leases = [lease for name in self.book.names() if (lease := self.book.pick(name, self.choose, old=0.1))]
        side = self.side
        if not leases:
            return
        lease = self.choose.choice(leases)
        ttl = self.choose.choice(("100 ms", "1 s", "1 min"))
        if self.choose.random() < 0.5:
            self.try_(side, "select fence.renew(%s, %s, %s, %s)", (*lease.parameters, ttl))
        else:
            names, tokens, secrets = zip(*[lease.parameters for lease in leases], strict=True)
            self.try_(
                side, "select code from fence.renew_all(%s, %s, %s, %s)", (*map(list, (names, tokens, secrets)), ttl)
            )
        time.sleep(0.002)  # a load like another's, not a race with itself


class Rivals(Actor):
    """Two who want the same lease at the same moment, again and again."""

    name = "rival"

    def __init__(self, workload: Workload, number: int, meeting: Meeting) -> None:
        super().__init__(workload, number)
        self.meeting = meeting

    @classmethod
    def pair(cls, workload: Workload) -> list[Callable[[], None]]:
        meeting = Meeting(workload)
        return [cls(workload, number, meeting).act for number in range(2)]

    def act(self) -> None:
        name = self.meeting.next()
        if name is not None:
            self.take_over(name)


class Meeting:
    """Where two threads agree on a name: both leave with the same one, at once."""

    def __init__(self, workload: Workload) -> None:
        self._book, self._choose = workload.book, workload.choose("meeting")
        self._name: str | None = None
        self._barrier = threading.Barrier(2, action=self._agree)

    def next(self) -> str | None:
        """None: the other one has gone home, or nobody has acquired anything yet."""
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(1)
            time.sleep(0.005)
            return self._name
        return None

    def _agree(self) -> None:
        names = self._book.names()
        self._name = self._choose.choice(names) if names else None


class Unaware(Actor):
    """A job that has never heard of leases."""

    name = "unaware"

    def act(self) -> None:
        write = tables.choose_write(self.choose, self.workload.db.cluster.version)
        self.try_(self.connection("write", "outsider"), f"{write.statement}", write.values)
        time.sleep(0.005)


class Vacuum(Actor):
    """Cleans up under everybody: the leases, their MultiXacts, and the tables."""

    name = "vacuum"

    def act(self) -> None:
        freeze = self.choose.choice(("", "(freeze)", "(analyze)"))
        self.side.execute(f"vacuum {freeze} fence._lease")
        self.connection("tables", "app_owner").execute(f"vacuum {freeze} {self.choose.choice(list(tables.GUARDED))}")
        time.sleep(0.02)
