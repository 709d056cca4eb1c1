"""The client's own short calls: acquire, renew, release. One transaction and one round trip each, with a deadline.

A frozen server, or one that has silently gone, gives no error: so every call has a wall-clock deadline of its own,
after which the connection's socket is shut down and the call ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pyfence._clock import Timekeeper, now
from pyfence._connect import AnyConnection, Connection, IdleConnections, close_quietly
from pyfence._statements import BEGIN, COMMIT, Row, Statement
from pyfence.errors import OutcomeUnknown, SchemaMismatch, translated

_GRACE = 1.0  # seconds between asking the server to cancel and giving the connection up


class Watch:
    """Ends what a connection is waiting for once `when` is past.

    With `cancel`, the server is asked to cancel first, which has a known outcome: nothing happened. Where it does not
    react either, and without `cancel`, the socket is shut down: the waiting call fails and the connection is dead.

    Raises:
        OutcomeUnknown: instead of the driver's error, where the connection had to be given up.
    """

    def __init__(self, conn: AnyConnection, timekeeper: Timekeeper, when: float, *, cancel: bool = True) -> None:
        self._conn = conn
        self._timekeeper = timekeeper
        self._when = when
        self._cancel = cancel
        self._lock = threading.Lock()
        self._over = False
        self._asked = False
        self._gave_up = False

    def __enter__(self) -> None:
        self._alarm = self._timekeeper.at(self._when, self._ring)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over = True
        self._alarm.cancel()
        if self._gave_up and isinstance(exc, psycopg.Error):
            raise OutcomeUnknown(
                "the server did not answer in time",
                detail="The connection was given up; the call may or may not have taken effect.",
            ) from exc
        if self._asked and isinstance(exc, psycopg.errors.QueryCanceled):
            exc.add_note("pyfence had it cancelled: there was no answer in time. Nothing was changed.")

    def _ring(self) -> float | None:
        with self._lock:
            if self._over:
                return None
            if self._cancel and not self._asked:
                self._asked = True
                with suppress(RuntimeError):  # no new threads while the interpreter shuts down
                    threading.Thread(target=self._ask, name="pyfence-cancel", daemon=True).start()
                return now() + _GRACE
            self._gave_up = True
            shut_down(self._conn)
            return None

    def _ask(self) -> None:
        with suppress(Exception):
            if isinstance(self._conn, psycopg.Connection):
                self._conn.cancel_safe(timeout=_GRACE)
            else:  # over a connection of its own: what runs in the application's loop does not matter
                asyncio.run(self._conn.cancel_safe(timeout=_GRACE))


def shut_down(conn: AnyConnection) -> None:
    """Ends both directions of a connection's socket, from any thread: whoever waits for it gets an error at once."""
    with ExitStack() as block:
        block.enter_context(suppress(OSError, psycopg.Error))
        # A second descriptor of the same socket; the family named here does not matter for a shutdown.
        sock = block.enter_context(socket.fromfd(conn.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM))
        sock.shutdown(socket.SHUT_RDWR)


def execute(conn: Connection, statement: Statement) -> psycopg.Cursor[Row]:
    """Runs a statement on a plain cursor, whatever factories and habits the connection has.

    A connection may be set up with `psycopg.ClientCursor`, which would put a secret into the text of the statement.
    Never prepared: preparing costs a round trip of its own, and a pooler may lose what was prepared.
    """
    return psycopg.Cursor(conn, row_factory=tuple_row).execute(statement.sql, statement.params, prepare=False)


@contextmanager
def pipelined(conn: Connection) -> Iterator[None]:
    """One round trip for the block's statements where libpq is new enough (14), else one each."""
    if psycopg.Pipeline.is_supported():
        with conn.pipeline() as pipeline:
            end_with_sync(pipeline)
            yield
    else:
        yield


def end_with_sync(pipeline: psycopg.Pipeline | psycopg.AsyncPipeline) -> None:
    """Makes a Sync the last message that the pipeline sends.

    psycopg (3.2, 3.3) adds a Flush, which is no statement, but makes the server stop its clock of an idle session:
    whoever freezes right after a pipelined `present` would stand in a successor's way for ever.
    """

    def exit_gen() -> Generator[int, int, None]:
        try:
            pipeline._enqueue_sync()
            yield from pipeline._communicate_gen()
        finally:
            yield from pipeline._fetch_gen(flush=False)

    pipeline._exit_gen = exit_gen  # type: ignore[method-assign,assignment]


class Unreplicated:
    """Notices a commit that succeeded here only, because its wait for a synchronous standby was cancelled."""

    def __init__(self, conn: AnyConnection) -> None:
        self._conn = conn
        self.seen = False

    def __enter__(self) -> Unreplicated:
        self._conn.add_notice_handler(self._notice)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conn.remove_notice_handler(self._notice)
        if exc is None and self.seen:
            raise OutcomeUnknown(
                "the commit was not replicated",
                detail="The wait for a synchronous standby was cancelled; a failover may undo the call.",
            )

    def _notice(self, diag: psycopg.errors.Diagnostic) -> None:
        # It comes as a mere warning, without a code of its own; the function that sends it is in no language.
        if diag.source_function == "SyncRepWaitForLSN":
            self.seen = True


class Calls:
    """Runs single statements on own connections, each in its own READ COMMITTED transaction. Thread-safe.

    Args:
        open_: opens an own connection.
        limit: how many calls run at once; more wait for their turn, within their own deadlines.
        spare: where an idle connection may be had before a new one is opened.
    """

    def __init__(
        self, open_: Callable[[], Connection], timekeeper: Timekeeper, *, limit: int, spare: Calls | None = None
    ) -> None:
        self._open = open_
        self._spare = spare
        self._idle: IdleConnections[Connection] = IdleConnections(keep=limit)
        self._timekeeper = timekeeper
        self._turns = threading.BoundedSemaphore(limit)

    def run(
        self, statement: Statement, *, timeout: float, resource: str | None = None, cancel: bool = True
    ) -> list[Row]:
        """The rows of `statement`, committed.

        Args:
            timeout: seconds until the call is ended, whatever the server and the network do.
            resource: the lease the call is about, for errors.
            cancel: ask the server to cancel before giving the connection up.

        Raises:
            FenceError: the database refused; `SchemaMismatch` where pyfence's schema is missing.
            OutcomeUnknown: no answer within `timeout`, or the commit was not replicated.
            psycopg.errors.ConnectionTimeout: no connection within `timeout`; nothing was sent.
            psycopg.Error: anything else, untouched.
        """
        if sys.is_finalizing():
            raise psycopg.OperationalError("the interpreter is shutting down")
        deadline = now() + timeout
        if not self._turns.acquire(timeout=timeout):
            raise psycopg.errors.ConnectionTimeout("nothing was sent: earlier calls have not been answered yet")
        try:
            while True:
                used = self._take()
                conn = used or self._idle.take_or_open(self._open, deadline)
                try:
                    with translated(resource=resource), Watch(conn, self._timekeeper, deadline, cancel=cancel):
                        rows = _exchange(conn, statement)
                except psycopg.errors.ReadOnlySqlTransaction:
                    # Nothing has happened. Where the connection is an old one, a new one may lead to another server.
                    close_quietly(conn)
                    self._forget_idle()
                    if used is None:
                        raise
                except BaseException as exc:
                    self._put_back(conn, exc)
                    if _schema_is_missing(exc):
                        raise SchemaMismatch(
                            "this database has no pyfence schema, or an older one",
                            hint="Run: pyfence migrate up",
                            resource=resource,
                        ) from exc
                    raise
                else:
                    self._idle.give(conn)
                    return rows
        finally:
            self._turns.release()

    def _take(self) -> Connection | None:
        return self._idle.take() or (None if self._spare is None else self._spare._idle.take())

    def _forget_idle(self) -> None:
        self._idle.clear()
        if self._spare is not None:
            self._spare._idle.clear()

    def _put_back(self, conn: Connection, exc: BaseException) -> None:
        # After a refusal the connection is as good as before. After anything else (a lost connection, an interrupt)
        # the next call gets a fresh one.
        refused = isinstance(exc, Exception) and isinstance(exc.__cause__, psycopg.Error)
        if refused and conn.info.transaction_status == TransactionStatus.IDLE:
            self._idle.give(conn)
        else:
            close_quietly(conn)

    def close(self) -> None:
        self._idle.close()


def _exchange(conn: Connection, statement: Statement) -> list[Row]:
    try:
        with Unreplicated(conn), pipelined(conn):
            execute(conn, BEGIN)
            cur = execute(conn, statement)
            execute(conn, COMMIT)
    except psycopg.Error:
        with suppress(psycopg.Error):
            conn.rollback()
        raise
    return cur.fetchall()


def _schema_is_missing(exc: BaseException) -> bool:
    return isinstance(exc, (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction))
