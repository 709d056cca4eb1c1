"""Judges a history, transaction by transaction in commit order. Knows nothing of how pyfence does what it promises.

What it goes by:
- fence._lease: a changed token is a grant, at the commit of the transaction that changed it;
- public.claimed: what the writers presented, in the transaction of the write (a rolled-back savepoint takes it back);
- the guarded tables themselves: a row that changed, whose resource is worked out here from its columns.

So for each row that was changed it knows exactly whether a newer token had been granted by the time of the commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stress.history import Change, Row, Transaction

LEASES, CLAIMED = "fence._lease", "public.claimed"


@dataclass(frozen=True)
class Guarded:
    """A guarded table, and the promises that it was protected with."""

    resource: Callable[[Row], str]
    writes: str = "many"
    token_column: str | None = None
    #: The resource whose holder may write every row, and what the names of the rows' resources begin with.
    covering: str | None = None
    covers: str = ""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, and by which transaction."""

    kind: str
    xid: int
    lsn: int
    resource: str
    token: int | None
    newer: str  # the resource whose token is the newest: this one, or the one that covers it
    newest: int | None
    number: int = 0  # that the writer gave its claim


#: What each kind of violation means.
KINDS = {
    "stale": "G2: a row was written under a token although a newer one had been granted before the commit",
    "unclaimed": "G3: a row was written without a claim on its resource",
    "disorder": "G1: a token was granted that is not above every earlier one of its resource",
    "usurped": "a lease was granted while its predecessor, the one that covers it, or one under it was live",
    "revived": "a lease that was closed was opened again, or got another secret, without a new token",
    "repeated": "once, sequenced: a second write under one token, or a sequence that did not go up",
    "misstamped": "the token column does not hold the token that the row was written under",
}


@dataclass
class Checker:
    """Feed it a history; it counts what was done and keeps every violation."""

    tables: Mapping[str, Guarded]
    generations: int = 0
    renewals: int = 0
    closings: int = 0
    transactions: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._leases: dict[str, Row] = {}
        self._number = 0
        self._applied: dict[tuple[str, str], tuple[int, int]] = {}

    def feed(self, history: Iterable[Transaction]) -> None:
        """Judge what comes next in the history."""
        for transaction in history:
            for change in transaction.changes:
                if change.table == LEASES and change.new is not None:
                    self._lease(transaction, change.new)
            self._judge(transaction)

    def count(self, kind: str) -> int:
        """How many violations of a kind there were."""
        return sum(violation.kind == kind for violation in self.violations)

    def summary(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "transactions": self.transactions,
            "writes": sum(self.writes.values()),
            "writes_by_table": dict(sorted(self.writes.items())),
            "generations": self.generations,
            "renewals": self.renewals,
            "closings": self.closings,
            "resources": len(self._newest),
            "violations": {kind: self.count(kind) for kind in KINDS},
        }

    def _lease(self, transaction: Transaction, new: Row) -> None:
        resource, token = str(new["resource"]), int(new["token"] or 0)
        old, newest = self._leases.get(resource), self._newest.get(resource)
        self._leases[resource] = new
        if old is not None and new["token"] == old["token"]:
            closed = new["secret_hash"] is None
            self.closings += closed and old["secret_hash"] is not None
            self.renewals += not closed
            if not closed and new["secret_hash"] != old["secret_hash"]:
                self._report("revived", transaction, resource, token)
            return
        self.generations += 1
        if newest is not None and token <= newest:
            self._report("disorder", transaction, resource, token)
        if old is not None and old["secret_hash"] is not None and str(old["expires_at"]) > str(new["acquired_at"]):
            self._report("usurped", transaction, resource, token)
        for guard in self.tables.values():
            beside: Iterable[Row | None] = ()
            if guard.covering and resource.startswith(guard.covers):
                beside = [self._leases.get(guard.covering)]
            elif resource == guard.covering and new["secret_hash"] is not None:
                beside = [lease for name, lease in self._leases.items() if name.startswith(guard.covers)]
            for other in beside:
                if other and other["secret_hash"] is not None and str(other["expires_at"]) > str(new["acquired_at"]):
                    self._report("usurped", transaction, resource, token)
        self._newest[resource] = max(token, newest or token)

    def _judge(self, transaction: Transaction) -> None:
        claimed: dict[str, set[int]] = defaultdict(set)
        sequences: dict[str, int] = {}
        touched: dict[tuple[str, str], Guarded] = {}
        self._number = 0
        for change in transaction.changes:
            if change.table == CLAIMED and change.new is not None:
                resource = str(change.new["resource"])
                claimed[resource].add(int(change.new["token"] or 0))
                sequences[resource] = self._number = int(change.new["sequence"] or 0)
        for change in transaction.changes:
            guard = self.tables.get(change.table)
            if guard is None:
                continue
            self.writes[change.table] += 1
            for resource in resources(guard, change):
                touched[change.table, resource] = guard
                tokens = claimed[resource] | (claimed[guard.covering] if guard.covering else set())
                self._row(transaction, guard, change, resource, tokens)
        for (table, resource), guard in touched.items():
            if guard.writes != "many" and claimed[resource]:
                self._turn(transaction, table, resource, max(claimed[resource]), sequences[resource], guard.writes)
        self.transactions += bool(touched)

    def _row(self, transaction: Transaction, guard: Guarded, change: Change, resource: str, tokens: set[int]) -> None:
        newest = max((resource, guard.covering or resource), key=lambda name: self._newest.get(name, 0))
        if not tokens:
            self._report("unclaimed", transaction, resource, None)
        elif min(tokens) < self._newest.get(newest, 0):
            self._report("stale", transaction, resource, min(tokens), newest)
        if guard.token_column and change.new is not None and guard.resource(change.new) == resource:
            stamped = change.new[guard.token_column]
            if stamped is None or int(stamped) not in tokens:
                self._report("misstamped", transaction, resource, int(stamped or 0))

    def _turn(
        self, transaction: Transaction, table: str, resource: str, token: int, sequence: int, writes: str
    ) -> None:
        before = self._applied.get((table, resource))
        self._applied[table, resource] = token, sequence
        if before is not None and before[0] == token and (writes == "once" or sequence <= before[1]):
            self._report("repeated", transaction, resource, token)

    def _report(
        self, kind: str, transaction: Transaction, resource: str, token: int | None, newer: str | None = None
    ) -> None:
        newer = newer or resource
        self.violations.append(
            Violation(
                kind, transaction.xid, transaction.lsn, resource, token, newer, self._newest.get(newer), self._number
            )
        )


def resources(guard: Guarded, change: Change) -> set[str]:
    """The resources whose rows a change touched: where the row was, and where it is."""
    return {guard.resource(image) for image in (change.old, change.new) if image is not None}
