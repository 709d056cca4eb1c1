"""Where connections come from: a URL, a psycopg pool or a SQLAlchemy engine.

A source gives two kinds. *Own* connections are the client's, opened with the source's settings but outside its pool,
so that acquiring and renewing never wait behind the application's work. *Work* connections carry the application's
transactions: they come from the caller's pool or engine, and go back to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from select import select
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from pyfence._clock import now
from pyfence.errors import BadArgument

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Engine

Connection = psycopg.Connection[Any]
AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

# For connections the client opens itself, where the caller's settings say nothing: give up on a host that is gone.
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15000,
    "fallback_application_name": "pyfence",
}
# With several hosts: the one that takes writes, and on to the next one well within a lease's ttl.
_DEFAULTS_OF_MANY: dict[str, str | int] = {"target_session_attrs": "read-write", "connect_timeout": 3}
_OF_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT", "target_session_attrs": "PGTARGETSESSIONATTRS"}
_DRIVER_PREFIXES = ("postgresql+psycopg://", "postgres+psycopg://")


class Source(Protocol):
    """What a `Fence` needs of the place its connections come from."""

    def open(self) -> Connection:
        """A new own connection, in autocommit. The client closes it. Blocks."""

    def work(self, timeout: float) -> AbstractContextManager[Connection]:
        """A connection for the caller's transaction, given back at the end of the block.

        `timeout`: seconds to wait for it, where the source has no such limit of its own.
        """

    def close(self) -> None:
        """Closes what the source itself has opened; never the caller's pool or engine."""


def source_of(value: object) -> Source:
    """The source for what was passed to `Fence`: a URL or conninfo text, a `ConnectionPool`, or an `Engine`."""
    if isinstance(value, str):
        return UrlSource(value)
    if callable(getattr(value, "getconn", None)):
        if "Async" in type(value).__name__:
            raise BadArgument("an async pool cannot serve a Fence", hint="Use AsyncFence, or a ConnectionPool.")
        return PoolSource(value)  # type: ignore[arg-type]
    if callable(getattr(value, "raw_connection", None)):
        if hasattr(value, "sync_engine"):
            raise BadArgument("an AsyncEngine cannot serve a Fence", hint="Use AsyncFence, or a plain Engine.")
        return EngineSource(value)  # type: ignore[arg-type]
    raise BadArgument(
        f"cannot take connections from a {type(value).__name__}",
        hint="Pass a postgresql:// URL, a psycopg_pool.ConnectionPool or a SQLAlchemy Engine.",
    )


def plain_url(url: str) -> str:
    """`url` as libpq reads it; SQLAlchemy's ``postgresql+psycopg://`` is accepted."""
    for prefix in _DRIVER_PREFIXES:
        if url.startswith(prefix):
            return "postgresql://" + url.removeprefix(prefix)
    return url


def settings_of(url: str) -> dict[str, Any]:
    """The connection settings in a URL or conninfo text, with the client's timeouts where it sets none."""
    try:
        settings = conninfo_to_dict(plain_url(url))
    except psycopg.ProgrammingError:
        # The driver's message may repeat the URL, password included.
        raise BadArgument(
            "not a valid connection URL", hint="Pass postgresql://user@host/database or libpq's key=value form."
        ) from None
    return with_defaults(settings)


def with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Connection settings with the client's timeouts where they set none."""
    return {**missing_settings(settings), **settings}


def missing_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """The client's defaults where neither `settings` nor libpq's environment variables say anything."""
    hosts = settings.get("host") or settings.get("hostaddr") or os.environ.get("PGHOST", "")
    defaults = {**_DEFAULTS, **(_DEFAULTS_OF_MANY if "," in str(hosts) else {})}
    given = {name for name, variable in _OF_ENVIRONMENT.items() if variable in os.environ}.union(settings)
    if "keepalives" in settings:
        given |= {"keepalives_idle", "keepalives_interval", "keepalives_count"}
    return {name: value for name, value in defaults.items() if name not in given}


@contextmanager
def dropped_where_read_only(conn: AnyConnection) -> Iterator[None]:
    """Ends a connection to a server that takes no writes (any more), so that the next one may lead elsewhere.

    A server that shuts down ends its connections itself.
    """
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction:
        conn.pgconn.finish()
        raise


def is_usable(conn: AnyConnection) -> bool:
    """Whether an idle connection looks alive, without a round trip: nothing may have arrived on it.

    What arrives on an idle connection is the server's farewell (a restart, a terminated backend) or a closed socket.
    """
    if conn.closed or conn.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        readable, _, _ = select([conn.pgconn.socket], [], [], 0)
    except (OSError, ValueError, psycopg.Error):
        return False
    return not readable


class IdleConnections(Generic[C]):
    """A stack of connections, sync or async, that are open and unused. Thread-safe."""

    def __init__(self, *, keep: int) -> None:
        self._keep = keep
        self._idle: list[C] = []
        self._changed = threading.Condition()
        self._waiting = 0
        self._closed = False

    def take(self) -> C | None:
        """A connection that looks alive, or None where a new one has to be opened."""
        with self._changed:
            if self._closed:
                raise BadArgument("this Fence is closed")
            while self._idle:
                conn = self._idle.pop()
                if is_usable(conn):
                    return conn
                conn.pgconn.finish()
            return None

    def take_or_open(self, open_: Callable[[], C], deadline: float) -> C:
        """A connection from the stack, or a new one; ConnectionTimeout at `deadline`.

        A new one is opened in a thread: libpq's own timeout counts whole seconds, from two, for each address, and not
        the look-up of the name. Where it comes too late for this call, it goes to the stack, for the next one.
        """
        conn = self.take()
        if conn is not None:
            return conn
        failures: list[BaseException] = []
        wanted = True

        def work() -> None:
            try:
                conn = open_()
            except BaseException as exc:
                with self._changed:
                    failures.append(exc)
                    self._changed.notify_all()
                return
            with self._changed:
                if wanted or self._waiting:
                    self.give(conn)
                else:  # its caller has got another one meanwhile
                    conn.pgconn.finish()

        with self._changed:
            self._waiting += 1
            try:
                try:
                    threading.Thread(target=work, name="pyfence-connect", daemon=True).start()
                except RuntimeError:  # the interpreter is shutting down: no new threads
                    return open_()
                while True:
                    conn = self.take()
                    if conn is not None:
                        wanted = False
                        return conn
                    if failures:
                        raise failures[0]
                    left = deadline - now()
                    if left <= 0:
                        raise psycopg.errors.ConnectionTimeout("no connection in time")
                    self._changed.wait(left)
            finally:
                self._waiting -= 1

    def give(self, conn: C) -> None:
        """Takes back a connection; one that is broken, in a transaction or one too many is closed."""
        if not conn.closed and conn.info.transaction_status == TransactionStatus.IDLE:
            with self._changed:
                if not self._closed and len(self._idle) < self._keep + self._waiting:
                    self._idle.append(conn)
                    self._changed.notify()
                    return
        conn.pgconn.finish()

    def clear(self) -> None:
        """Closes what is idle."""
        with self._changed:
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.pgconn.finish()

    def close(self) -> None:
        """The same, and nothing is taken or given any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.clear()


class UrlSource:
    """Own and work connections to a URL. As many work connections as there are concurrent transactions."""

    def __init__(self, url: str) -> None:
        self._settings = settings_of(url)
        self._idle: IdleConnections[Connection] = IdleConnections(keep=4)

    def open(self) -> Connection:
        return psycopg.connect(**self._settings, autocommit=True)

    def _open_work(self) -> Connection:
        # The application's statements are not prepared on the server: a pooler in between may lose them.
        return psycopg.connect(**self._settings, prepare_threshold=None)

    @contextmanager
    def work(self, timeout: float) -> Iterator[Connection]:
        conn = self._idle.take_or_open(self._open_work, now() + timeout)
        try:
            with dropped_where_read_only(conn):
                yield conn
        finally:
            self._idle.give(conn)

    def close(self) -> None:
        self._idle.close()


class PoolSource:
    """Work connections from the caller's psycopg pool; own ones opened with the pool's settings, beside it."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool

    def open(self) -> Connection:
        pool = self._pool
        # Both may be callables, for passwords that change.
        conninfo: Any = pool.conninfo
        kwargs: Any = pool.kwargs
        conninfo = conninfo() if callable(conninfo) else conninfo
        kwargs = dict((kwargs() if callable(kwargs) else kwargs) or {})
        settings = conninfo_to_dict(plain_url(conninfo or ""))
        missing = missing_settings({**settings, **kwargs})
        conn = pool.connection_class.connect(conninfo, **{**missing, **kwargs})
        # What the pool does to a new connection (SET ROLE, type adapters) belongs to it as much as the URL does;
        # psycopg_pool has no public way to ask for it.
        configure = getattr(pool, "_configure", None)
        if configure is not None:
            configure(conn)
        return made_own(conn)

    @contextmanager
    def work(self, timeout: float) -> Iterator[Connection]:
        conn = self._pool.getconn()
        try:
            with dropped_where_read_only(conn):
                yield conn
        finally:
            self._pool.putconn(conn)

    def close(self) -> None:
        """Nothing: the pool is the caller's."""


class EngineSource:
    """Work connections from the caller's SQLAlchemy engine; own ones made by the engine's creator, beside its pool."""

    def __init__(self, engine: Engine) -> None:
        require_psycopg(engine.dialect)
        self._engine = engine

    def open(self) -> Connection:
        # A pool of its own, by the same creator and with the same events; detached, the connection belongs to nobody.
        fairy = self._engine.pool.recreate().connect()
        conn: Any = fairy.driver_connection
        fairy.detach()
        return made_own(conn)

    @contextmanager
    def work(self, timeout: float) -> Iterator[Connection]:
        fairy = self._engine.raw_connection()
        conn: Any = fairy.driver_connection
        try:
            with dropped_where_read_only(conn):
                yield conn
        finally:
            if conn.closed:
                fairy.invalidate()
            fairy.close()

    def close(self) -> None:
        """Nothing: the engine is the caller's."""


def require_psycopg(dialect: Any) -> None:
    """Raises BadArgument where an engine's driver is another one."""
    if dialect.driver != "psycopg":
        raise BadArgument(
            f"pyfence works with psycopg 3, not with {dialect.name}+{dialect.driver}",
            hint="Create the engine with a postgresql+psycopg:// URL.",
        )


def made_own(conn: Connection) -> Connection:
    """A connection that somebody else's pool has opened, in autocommit."""
    if conn.info.transaction_status != TransactionStatus.IDLE:
        conn.rollback()
    conn.autocommit = True
    return conn


def close_quietly(conn: Connection) -> None:
    """Closes a connection that may be broken already."""
    with suppress(Exception):
        conn.close()


def open_within(open_: Callable[[], Connection], deadline: float) -> Connection:
    """A new connection, or ConnectionTimeout at `deadline`; one that arrives later is closed."""
    alone: IdleConnections[Connection] = IdleConnections(keep=0)
    try:
        return alone.take_or_open(open_, deadline)
    finally:
        alone.close()
