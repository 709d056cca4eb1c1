"""What is measured: each guarded way of writing beside the unguarded one, on tables of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from pyfence.bench import _sql
from pyfence.bench._measure import Group, Variant
from pyfence.bench._place import Place, text

SINGLE_ROWS = 10_000  # of the tables that take one row at a time


@dataclass(frozen=True)
class Size:
    """How much is measured: rows of a bulk update, transactions of one run of the others, and rounds of each."""

    rows: int
    transactions: int
    durable_transactions: int
    bulk_rounds: int
    rounds: int


FULL = Size(rows=300_000, transactions=400, durable_transactions=60, bulk_rounds=11, rounds=25)
QUICK = Size(rows=30_000, transactions=100, durable_transactions=20, bulk_rounds=5, rounds=9)


class Work:
    """Builds the groups on a place: tables, guards and leases first, then the closures that are measured."""

    def __init__(self, place: Place, size: Size) -> None:
        self._place = place
        self._size = size
        self._connection = place.connection
        # The same rows for both sides, spread: a row that is updated over and over grows a chain of versions.
        numbers = list(range(1, SINGLE_ROWS + 1))
        random.Random(1).shuffle(numbers)
        self._rows = numbers

    def bulk(self) -> Group:
        """One UPDATE of every row, in a transaction of its own."""
        self._connection.execute(_sql.DURABLE[False])
        rows = self._size.rows
        plain, by_table, by_row = (self._place.table(f"bulk_{name}", rows) for name in ("plain", "table", "row"))
        whole = self._place.protect(by_table, "bulk")
        tenants = self._place.protect(by_row, "bulk:{tenant}", range(_sql.TENANTS))
        claims = tuple(list(column) for column in zip(*tenants, strict=True))
        return Group(
            name=f"bulk UPDATE, {rows} rows",
            each="row",
            operations=rows,
            rounds=self._size.bulk_rounds,
            variants=(
                Variant("unguarded", self._transaction((), text(_sql.BULK_UPDATE, table=plain))),
                Variant(
                    "table scope",
                    self._transaction(((_sql.PRESENT, whole[0]),), text(_sql.BULK_UPDATE, table=by_table)),
                    target=1.10,
                ),
                Variant(
                    f"row scope, {_sql.TENANTS} claims",
                    self._transaction(((_sql.PRESENT_ALL, claims),), text(_sql.BULK_UPDATE, table=by_row)),
                    target=1.75,
                ),
            ),
            tidy=self._place.vacuum(plain, by_table, by_row),
        )

    def single(self, *, durable: bool) -> Group:
        """BEGIN; present; UPDATE of one row; COMMIT against the same without present, each statement a round trip."""
        self._connection.execute(_sql.DURABLE[durable])
        suffix = "durable" if durable else "lazy"
        plain, guarded = (self._place.table(f"single_{name}_{suffix}", SINGLE_ROWS) for name in ("plain", "row"))
        (claim,) = self._place.protect(guarded, f"single_{suffix}:{{tenant}}", [0])
        count = self._size.durable_transactions if durable else self._size.transactions
        rows = [number for number in self._rows if number % _sql.TENANTS == 0]
        connection = self._connection

        def transactions(table: sql.Identifier, claim: tuple[Any, ...] | None) -> Callable[[int], object]:
            update = text(_sql.ROW_UPDATE, table=table)
            turn = cycle(rows)

            def run(number: int) -> None:
                for _ in range(count):
                    connection.execute("begin")
                    if claim is not None:
                        connection.execute(_sql.PRESENT, claim)
                    connection.execute(update, (number, next(turn)))
                    connection.execute("commit")

            return run

        variants = (
            Variant("unguarded", transactions(plain, None)),
            Variant(
                "durable" if durable else "not durable",
                transactions(guarded, claim),
                measure="wall" if durable else "cpu",
                target=1.3 if durable else 2.0,
            ),
        )
        return Group(
            "transaction of one row",
            "transaction",
            count,
            self._size.rounds,
            variants,
            self._place.vacuum(plain, guarded),
        )

    def fenced_update(self) -> Group:
        """`fence.fenced_update()` against an UPDATE, one statement each."""
        self._connection.execute(_sql.DURABLE[False])
        plain, guarded = (self._place.table(f"fenced_{name}", SINGLE_ROWS) for name in ("plain", "row"))
        (claim,) = self._place.protect(guarded, "fenced:{tenant}", [0])
        rows = [number for number in self._rows if number % _sql.TENANTS == 0]
        update, turn, guarded_turn = text(_sql.ROW_UPDATE, table=plain), cycle(rows), cycle(rows)
        name = guarded.as_string(self._connection)
        connection, count = self._connection, self._size.transactions

        def unguarded(number: int) -> None:
            for _ in range(count):
                connection.execute(update, (number, next(turn)))

        def fenced(number: int) -> None:
            for _ in range(count):
                key, changes = Jsonb({"id": next(guarded_turn)}), Jsonb({"amount": number})
                connection.execute(_sql.FENCED_UPDATE, (name, key, changes, *claim))

        return Group(
            name="fenced_update()",
            each="row",
            operations=count,
            rounds=self._size.rounds,
            variants=(Variant("unguarded", unguarded), Variant("against an UPDATE", fenced)),
            tidy=self._place.vacuum(plain, guarded),
        )

    def acquire_and_release(self) -> Group:
        """A lease taken and given back, two statements, against the upsert that a home-made lock would be."""
        self._connection.execute(_sql.DURABLE[False])
        table = self._place.upsert_table()
        names = [self._place.resource(f"turn:{number}") for number in range(_sql.NAMES)]
        upsert, turn, lease_turn = text(_sql.UPSERT, table=table), cycle(names), cycle(names)
        connection, count = self._connection, self._size.transactions

        def upserts(number: int) -> None:
            for _ in range(count):
                connection.execute(upsert, (next(turn),))

        def leases(number: int) -> None:
            for _ in range(count):
                name = next(lease_turn)
                token, secret = self._place.acquire(name)
                connection.execute(_sql.RELEASE, (name, token, secret))

        return Group(
            name="acquire and release",
            each="pair",
            operations=count,
            rounds=self._size.rounds,
            variants=(Variant("unguarded", upserts), Variant("against an upsert", leases)),
            tidy=self._place.vacuum(table),
        )

    def _transaction(
        self, before: Sequence[tuple[str, tuple[Any, ...]]], statement: sql.Composed
    ) -> Callable[[int], object]:
        connection = self._connection

        def run(number: int) -> None:
            connection.execute("begin")
            for query, values in before:
                connection.execute(query, values)
            connection.execute(statement)
            connection.execute("commit")

        return run
