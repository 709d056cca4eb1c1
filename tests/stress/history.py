"""What really happened in a database, in the order of its commits.

The order is that of the commit records in the write-ahead log, read back by logical decoding. It is total, it needs no
clock, and it is the order that the guarantees speak of: a transaction writes its commit record before it lets go of its
locks and becomes visible, so whoever waited for it, or saw it, stands after it in the log. Rolled-back transactions and
savepoints are not in it; a transaction that was prepared stands where it was committed. pgoutput is part of every
server.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

Row = Mapping[str, str | None]


@dataclass(frozen=True)
class Change:
    """One row that a transaction changed. `old` is None for an insert, `new` for a delete; values are text."""

    table: str
    old: Row | None
    new: Row | None


@dataclass
class Transaction:
    """A committed transaction: its number, the position of its commit record, its changes in their order."""

    xid: int
    lsn: int
    changes: list[Change] = field(default_factory=list)


class Recorder:
    """A replication slot on some tables; `read()` returns what was committed since the last call."""

    NAME = "stress"

    def __init__(self, connection: psycopg.Connection[TupleRow], tables: Iterable[str], inserts: Iterable[str]) -> None:
        """Begin with this moment. `connection` is a superuser's, autocommit.

        Args:
            tables: recorded with their old rows, so that one sees where a row came from; partitions as their root.
            inserts: only what is put in (log tables), and what is changed where the table has a key.
        """
        self._connection = connection
        self._slot = f"{self.NAME}_{connection.info.backend_pid}"
        self._decoder = Decoder()
        connection.execute("set timezone = 'UTC'")  # so that moments, as text, sort in their order
        for table in tables:
            members = connection.execute(
                "select relid::text from pg_partition_tree(%s::regclass) union select %s", (table, table)
            ).fetchall()
            for (member,) in members:
                connection.execute(f"alter table {member} replica identity full")
        names = ", ".join([*tables, *inserts])
        connection.execute(f"create publication {self.NAME} for table {names} with (publish_via_partition_root)")
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))

    def read(self) -> list[Transaction]:
        """Every transaction that was committed since the last call and has changes in the tables, in commit order."""
        self._flush()
        cursor = self._connection.execute(
            "select data from pg_logical_slot_get_binary_changes(%s, null, null, "
            "'proto_version', '1', 'publication_names', %s)",
            (self._slot, self.NAME),
            binary=True,
        )
        return list(self._decoder.decode(data for (data,) in cursor))

    def close(self) -> None:
        """Give the slot up, so that the database can be dropped."""
        self._connection.execute("select pg_drop_replication_slot(%s)", (self._slot,))

    def _flush(self) -> None:
        """Decoding reads what is on disk; a commit that waits for the disk takes every earlier one along."""
        with self._connection.transaction():
            self._connection.execute("set local synchronous_commit = on")
            self._connection.execute(sql.SQL("comment on publication {} is 'read'").format(sql.Identifier(self.NAME)))


class Decoder:
    """pgoutput's messages, version 1."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[str, list[str]]] = {}

    def decode(self, messages: Iterable[bytes]) -> Iterator[Transaction]:
        """Group the messages of whole transactions; those without a change are left out."""
        current: Transaction | None = None
        for message in messages:
            kind, body = message[:1], _Reader(message[1:])
            if kind == b"B":
                lsn, _, xid = body.take("!QqI")
                current = Transaction(xid, lsn)
            elif kind == b"R":
                self._describe(body)
            elif kind == b"C":
                if current is not None and current.changes:
                    yield current
                current = None
            elif kind in (b"I", b"U", b"D") and current is not None:
                current.changes.append(self._change(body))

    def _describe(self, body: _Reader) -> None:
        (oid,) = body.take("!I")
        name = f"{body.text()}.{body.text()}"
        _, count = body.take("!cH")
        columns = []
        for _ in range(count):
            body.take("!B")
            columns.append(body.text())
            body.take("!Ii")
        self._tables[oid] = name, columns

    def _change(self, body: _Reader) -> Change:
        (oid,) = body.take("!I")
        name, columns = self._tables[oid]
        images: dict[bytes, Row] = {}
        while not body.ended:
            (image,) = body.take("!c")
            (count,) = body.take("!H")
            images[image] = dict(zip(columns[:count], [body.value() for _ in range(count)], strict=True))
        return Change(name, images.get(b"O", images.get(b"K")), images.get(b"N"))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._data)

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def value(self) -> str | None:
        (kind,) = struct.unpack_from("!c", self._data, self._at)
        self._at += 1
        if kind != b"t":
            return None
        (length,) = self.take("!I")
        self._at += length
        return self._data[self._at - length : self._at].decode()
