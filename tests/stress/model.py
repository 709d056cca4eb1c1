"""What pyfence promises, as a model without a database: who may write at this moment, and what whoever may not is told.

Only the rules of the guarantees are in here (docs, G1, G2, G6, G8), nothing of how they are kept.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

RC, RR, SER = "read committed", "repeatable read", "serializable"
LIVE, EXPIRED, CLOSED = "live", "expired", "closed"


@dataclass(frozen=True)
class Held:
    """A lease that was granted once."""

    resource: int
    token: int
    secret: str = field(repr=False)


@dataclass
class State:
    """A resource at one moment: its newest token, whether it is live, how often it was changed and granted so far."""

    token: int | None = None
    status: str = CLOSED
    changes: int = 0
    grants: int = 0


@dataclass
class Work:
    """What a rolled-back savepoint takes back."""

    claims: dict[int, Held] = field(default_factory=dict)
    locks: set[int] = field(default_factory=set)
    writes: dict[int, int] = field(default_factory=dict)
    written_under: dict[int, int] = field(default_factory=dict)


@dataclass
class Open:
    """An open transaction. `seen`: what its snapshot shows, at the levels that keep one."""

    level: str
    seen: dict[int, State] | None = None
    work: Work = field(default_factory=Work)
    savepoints: list[Work] = field(default_factory=list)
    failed: bool = False

    def fail(self) -> None:
        """An error: up to the last savepoint nothing is left, and no lock is held."""
        self.failed = True
        self.work = deepcopy(self.savepoints[-1]) if self.savepoints else Work()


class Model:
    """Resources and open transactions, by the numbers of resources and holders."""

    def __init__(self, resources: int, holders: int) -> None:
        self.now = {number: State() for number in range(resources)}
        self.open: dict[int, Open] = {}
        self.rows = {(resource, holder): 0 for resource in range(resources) for holder in range(holders)}

    # -- leases ---------------------------------------------------------------------------------------------------

    def change(self, resource: int, status: str | None = None) -> None:
        """The lease was changed, not granted: renewed (None), expired or closed."""
        state = self.now[resource]
        state.changes += 1
        state.status = status or state.status

    def grant(self, resource: int, token: int) -> None:
        """G1: a new token is above every earlier one."""
        state = self.now[resource]
        assert state.token is None or token > state.token, f"token {token} after {state.token}"
        self.now[resource] = State(token, LIVE, state.changes + 1, state.grants + 1)

    def expected_of_acquire(self, resource: int) -> str | None:
        """None: granted; else why not. An expired lease that is waited for is closed by the call."""
        state = self.now[resource]
        if state.status == LIVE:
            return "held"
        if any(
            resource in transaction.work.locks or any(resource in point.locks for point in transaction.savepoints)
            for transaction in self.open.values()
        ):
            return "draining"
        return None

    def expected_of_renew(self, lease: Held) -> str | None:
        state = self.now[lease.resource]
        if lease.token != state.token or state.status == CLOSED:
            return "LF001"
        return "LF002" if state.status == EXPIRED else None

    # -- transactions ---------------------------------------------------------------------------------------------

    def look(self, holder: int) -> None:
        """A statement runs: the snapshot is taken, if there is none and the level keeps one."""
        transaction = self.open[holder]
        if transaction.level != RC and transaction.seen is None:
            transaction.seen = deepcopy(self.now)

    def verdict(self, holder: int, lease: Held, *, clock: bool) -> str | None:
        """What a claim is answered in this transaction now: a code, or None for accepted. `clock`: expiry counts."""
        transaction = self.open[holder]
        now = self.now[lease.resource]
        seen = now if transaction.seen is None else transaction.seen[lease.resource]
        if seen.grants != now.grants:
            return "40001"
        if lease.token != seen.token or seen.status == CLOSED:
            return "LF001"
        if clock and seen.status == EXPIRED:
            return "LF002" if seen.changes == now.changes else "40001"
        return None

    def expected_of_write(self, holder: int, resource: int) -> str | None:
        claims = self.open[holder].work.claims
        if not claims:
            return "LF004"
        if resource not in claims:
            return "LF005"
        return self.verdict(holder, claims[resource], clock=True)

    def commit(self, holder: int) -> None:
        """G2: whatever was written was written under the newest token there is."""
        transaction = self.open.pop(holder)
        for resource, token in transaction.work.written_under.items():
            assert token == self.now[resource].token, f"{token} is committed after {self.now[resource].token}"
        for resource, value in transaction.work.writes.items():
            self.rows[resource, holder] = value
