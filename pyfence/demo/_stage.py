"""What the story is played on: tables, roles and addresses, and how the tables are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from pyfence.demo import _sql

Connection = psycopg.Connection[Any]


class StageError(RuntimeError):
    """The demo cannot be played here; the text says why, and what to do about it."""


@dataclass
class Stage:
    """What the story uses.

    Attributes:
        worker_url: for the workers: clients of pyfence that may write to the tables.
        legacy_url: for the program that knows nothing of pyfence; on the demo's own server it has no right in it.
        schema: the schema that holds the tables.
        prefix: the names of the rows' resources are this, a colon, and the row's id.
        watcher: an autocommit connection that may read them.
        described: the server, in words.
        left_behind: filled at the end with what is still there, in words.
    """

    worker_url: str
    legacy_url: str
    schema: str
    prefix: str
    watcher: Connection
    described: str
    left_behind: list[str] = field(default_factory=list)

    def resource(self, row: int) -> str:
        """The resource of a row of the report table."""
        return f"{self.prefix}:{row}"

    def row(self, table: str, row: int) -> tuple[str, str]:
        """The body of a report and who wrote it; two empty texts if there is no such row."""
        query = text(_sql.READ_ROW, table=sql.Identifier(self.schema, table))
        found = self.watcher.execute(query, (row,)).fetchone()
        return ("", "") if found is None else (str(found[0]), str(found[1]))


def build_tables(connection: Connection, schema: str) -> None:
    """The report table, and beside it the one with the naive trigger; two rows each."""
    for statement in (_sql.REPORT_TABLE, _sql.NAIVE_TABLE, _sql.NAIVE_FUNCTION, _sql.NAIVE_TRIGGER, *_sql.ROWS):
        connection.execute(text(statement, schema=sql.Identifier(schema)))


def protect(connection: Connection, schema: str, prefix: str) -> None:
    """From here on every write to the report table has to present the current token of its row."""
    connection.execute(_sql.PROTECT, (report_name(schema), f"{prefix}:{{id}}"))


def report_name(schema: str) -> str:
    """The report table's name as PostgreSQL reads it."""
    return f'"{schema}".report'


def text(statement: str, **parts: sql.Composable) -> sql.Composed:
    """A statement of `_sql` with its names filled in."""
    return sql.SQL(statement).format(**parts)
