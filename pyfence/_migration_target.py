"""From whatever a caller has (a URL, a connection) to the SQLAlchemy connection that Alembic needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import StaticPool

from pyfence._connect import plain_url, with_defaults
from pyfence.errors import BadArgument

Target = str | Connection | Engine | psycopg.Connection[Any]
"""A URL (`postgresql://`, `postgresql+psycopg://`, or libpq's `key=value` form), an engine, or an open connection."""


class _Borrowed:
    """A psycopg connection lent to SQLAlchemy, which may use it but neither end its transaction nor configure it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self, *args: Any, **kwargs: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Make a plain cursor, whatever row and cursor factories the connection's owner has chosen."""
        return psycopg.Cursor(self._connection, row_factory=tuple_row)

    def commit(self) -> None:
        """Do nothing: the transaction belongs to the connection's owner."""

    rollback = close = commit

    def add_notice_handler(self, handler: object) -> None:
        """Do nothing: notices go where the connection's owner wants them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@contextmanager
def _wrapped(raw: psycopg.Connection[Any]) -> Iterator[Connection]:
    """Yield a SQLAlchemy connection over `raw`, inside the transaction that `raw` is in."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: _Borrowed(raw),
        poolclass=StaticPool,
        use_native_hstore=False,
    )
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    finally:
        engine.dispose()


@contextmanager
def connected(target: Target) -> Iterator[Connection]:
    """Yield a SQLAlchemy connection in a transaction of the target's: READ COMMITTED unless the caller opened it.

    A URL or an engine: a new connection, committed at the end. An open connection: its transaction is joined, or
    opened, and left for the caller to commit; one in autocommit mode gets one of its own, committed at the end.
    """
    if isinstance(target, str):
        with psycopg.connect(**connect_arguments(target)) as raw:
            raw.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            with _wrapped(raw) as connection:
                yield connection
    elif isinstance(target, Engine):
        options = {"isolation_level": "READ COMMITTED"}
        with target.execution_options(**options).begin() as connection:
            yield connection
    elif isinstance(target, psycopg.Connection):
        own = target.transaction() if target.autocommit else nullcontext()
        with own, _wrapped(target) as connection:
            yield connection
    elif isinstance(target, Connection):
        driver = target.connection.driver_connection
        if isinstance(driver, psycopg.Connection) and driver.autocommit:
            with connected(driver) as connection:
                yield connection
            return
        if not target.in_transaction():
            target.begin()
        yield target
    else:
        raise BadArgument(
            f"cannot migrate a {type(target).__name__}",
            hint="Pass a postgresql:// URL, a psycopg connection, or a SQLAlchemy connection or engine.",
        )


def connect_arguments(url: str) -> dict[str, Any]:
    """Split a URL into psycopg's arguments. Errors name neither the URL nor any part of it: it holds a password."""
    hint = "Percent-encode special characters in the user name and the password."
    try:
        arguments = dict(conninfo_to_dict(plain_url(url)))
    except psycopg.Error:
        raise BadArgument("the database URL cannot be read", hint=hint) from None
    # What follows a stray '@' or '/' lands in the host or the port, and libpq would quote it in its error.
    port = str(arguments.get("port") or "")
    if "@" in str(arguments.get("host") or "") or not all(part.isdecimal() for part in port.split(",") if part):
        raise BadArgument("the database URL has no valid host and port", hint=hint)
    return with_defaults(arguments)
