"""Presenting claims on a SQLAlchemy connection: past its cursors, whose logs and errors show parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from pyfence import _statements
from pyfence._statements import Statement
from pyfence.errors import BadArgument, from_driver
from pyfence.sqlalchemy._errors import refusal, translate
from pyfence.types import Claim


def present(connection: Connection, claims: Sequence[Claim]) -> None:
    """Presents claims in the connection's transaction; that of an async engine from inside its greenlet.

    Raises:
        FenceError: (a `DBAPIError` too) the database refused.
        BadArgument: the connection commits by itself, or is not psycopg's.
        DBAPIError: anything else, as SQLAlchemy wraps it: a serialization failure, a lost connection.
    """
    statement = _statements.present(claims)
    adapted: Any = connection.connection.dbapi_connection
    driver: Any = getattr(adapted, "driver_connection", adapted)
    if not isinstance(driver, (psycopg.Connection, psycopg.AsyncConnection)):
        raise BadArgument(
            f"pyfence works with psycopg 3, not with {connection.dialect.name}+{connection.dialect.driver}",
            hint="Create the engine with a postgresql+psycopg:// URL. "
            "For a session over several databases pass bind=, the engine of the lease's.",
        )
    if driver.autocommit and driver.info.transaction_status == TransactionStatus.IDLE:
        raise BadArgument(
            "a lease can only be presented inside a transaction",
            detail="This connection is in AUTOCOMMIT: the claim would be gone before the next statement.",
            hint="Use an engine, or connection options, with another isolation_level. For a single write in "
            "AUTOCOMMIT: lease.fenced_update().",
        )
    translate(connection.engine)
    try:
        if isinstance(driver, psycopg.Connection):
            _execute(driver, statement)
        else:
            adapted.run_async(lambda conn: _execute_async(conn, statement))
    except psycopg.Error as exc:
        error = from_driver(exc, resource=claims[0].resource if len(claims) == 1 else None)
        if error is not None:
            raise refusal(error, exc, statement.sql) from exc
        if driver.closed:
            connection.invalidate(exc)
        raise DBAPIError.instance(
            statement.sql, None, exc, psycopg.Error, connection_invalidated=driver.closed, dialect=connection.dialect
        ) from exc


def _execute(conn: psycopg.Connection[Any], statement: Statement) -> None:
    psycopg.Cursor(conn, row_factory=tuple_row).execute(statement.sql, statement.params, prepare=False)


async def _execute_async(conn: psycopg.AsyncConnection[Any], statement: Statement) -> None:
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    await cursor.execute(statement.sql, statement.params, prepare=False)
