"""One connection for one command: opened, watched, and every failure told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from pyfence._calls import Unreplicated, Watch
from pyfence._clock import Timekeeper, now
from pyfence._connect import Connection, close_quietly, open_within
from pyfence._statements import Statement
from pyfence.cli import _queries
from pyfence.cli._failures import Failed, failure_of, no_connection
from pyfence.cli._output import say
from pyfence.cli._settings import Settings
from pyfence.errors import FenceError, SchemaMismatch

DEFAULT_TIMEOUT = 30.0  # seconds
LONG_TIMEOUT = 600.0  # of what looks at every guard
_CONNECT_TIMEOUT = 30.0  # seconds, over all addresses of a host and its name's look-up

_CANCELLED = "57014"
_NOT_GRANTED = "01007"  # a GRANT that granted nothing is only a warning to the server

Hints = Mapping[str, str]
"""What to do next, by SQLSTATE, where the server itself gives no hint."""


@contextmanager
def connection(settings: Settings, **more: Any) -> Iterator[Connection]:
    """Yield a connection in autocommit mode, closed at the end. The server's notices go to stderr.

    `more`: further arguments of the driver's.

    Raises `Failed` with exit code 3 where there is none, click.UsageError where the URL cannot be read.
    """
    arguments = settings.connect_arguments()
    hint = f"The connection comes from {settings.url_origin()}: check its host, port, user and database."
    try:
        conn = open_within(
            lambda: psycopg.connect(
                **{"client_encoding": "utf8", **arguments, **more}, autocommit=True, prepare_threshold=None
            ),
            now() + (settings.timeout or _CONNECT_TIMEOUT),
        )
    except (psycopg.Error, OSError, ValueError) as exc:
        raise no_connection(exc, hint) from exc
    try:
        conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        conn.add_notice_handler(_tell)
        yield conn
    finally:
        close_quietly(conn)


@contextmanager
def watched(conn: Connection, seconds: float | None) -> Iterator[None]:
    """End what the connection waits for after `seconds`: cancelled, else given up. None: no limit."""
    if seconds is None:
        yield
        return
    try:
        with Watch(conn, Timekeeper(), now() + seconds):
            yield
    except (psycopg.errors.QueryCanceled, FenceError) as exc:
        failure = failure_of(exc)
        if failure is None or failure.code != _CANCELLED:
            raise
        raise Failed(replace(failure, hint="Try again, or allow more time: --timeout SECONDS.")) from exc


class Session:
    """A transaction on a database that holds pyfence's schema."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.refused_grants: list[str] = []
        conn.add_notice_handler(self._notice)

    def rows(self, statement: Statement) -> list[DictRow]:
        """Run a statement and return its rows, each a mapping by column."""
        cursor = psycopg.Cursor(self._conn, row_factory=dict_row)
        cursor.execute(statement.sql, statement.params, prepare=False)
        return cursor.fetchall() if cursor.description else []

    def value(self, statement: Statement) -> Any:
        """Run a statement that returns one value."""
        ((value,),) = (row.values() for row in self.rows(statement))
        return value

    def grant(self, statements: Sequence[str]) -> None:
        """Run GRANT statements that the database itself has written, all or none."""
        for text in statements:
            self._conn.execute(text.encode(), prepare=False)
        if self.refused_grants:
            raise FenceError(
                "not every right could be granted; none was",
                detail=" ".join(self.refused_grants),
                hint="Connect as the owner of schema fence.",
            )

    def _notice(self, diag: psycopg.errors.Diagnostic) -> None:
        if diag.sqlstate == _NOT_GRANTED:
            self.refused_grants.append(diag.message_primary or _NOT_GRANTED)


@contextmanager
def session(
    settings: Settings, *, hints: Hints | None = None, timeout: float | None = DEFAULT_TIMEOUT
) -> Iterator[Session]:
    """Yield a READ COMMITTED transaction, committed at the end; timestamps in it are UTC.

    `timeout`: seconds for all of it where --timeout does not say; None: no limit.

    Raises `SchemaMismatch` where pyfence is not installed, else what the database refused, with its hint or ours.
    """
    with connection(settings) as conn:
        try:
            with watched(conn, settings.timeout or timeout), Unreplicated(conn), conn.transaction():
                current = Session(conn)
                (prepared,) = current.rows(_queries.PREPARE)
                if not prepared["installed"]:
                    raise SchemaMismatch(
                        "this database has no pyfence schema", hint="Run: pyfence migrate up", schema="fence"
                    )
                yield current
        except psycopg.Error as exc:
            failure = failure_of(exc)
            hint = (hints or {}).get(exc.sqlstate or "")
            if failure is None or failure.hint or not hint:
                raise
            raise Failed(replace(failure, hint=hint)) from exc


def _tell(diag: psycopg.errors.Diagnostic) -> None:
    severity = (diag.severity_nonlocalized or diag.severity or "notice").lower()
    say(f"{severity}: {diag.message_primary}")
    if diag.message_hint:
        say(f"hint: {diag.message_hint}")
