"""`fenced_execute`: one statement under a lease, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, overload

from sqlalchemy import Connection, Executable
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import ResourceClosedError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from pyfence._writing import Holding, claims_of
from pyfence.errors import BadArgument
from pyfence.sqlalchemy._present import present
from pyfence.sqlalchemy._targets import Bind, Target, connection_of, core_of, core_of_bind
from pyfence.types import Claim


@overload
def fenced_execute(
    target: Session | Connection | scoped_session[Any],
    statement: Executable,
    lease: Holding | Claim,
    parameters: Any = None,
    *,
    sequence: int | None = None,
    bind: Bind | None = None,
) -> int: ...


@overload
def fenced_execute(
    target: AsyncSession | AsyncConnection | async_scoped_session[Any],
    statement: Executable,
    lease: Holding | Claim,
    parameters: Any = None,
    *,
    sequence: int | None = None,
    bind: Bind | None = None,
) -> Awaitable[int]: ...


def fenced_execute(
    target: Target,
    statement: Executable,
    lease: Holding | Claim,
    parameters: Any = None,
    *,
    sequence: int | None = None,
    bind: Bind | None = None,
) -> int | Awaitable[int]:
    """Presents `lease` in the transaction of `target` and executes one writing statement. Gives the rows it changed.

    Joins the open transaction, or begins it as `execute` would, and never commits. To be awaited for an async session
    or connection. For several statements, and for the ORM's flushes: `fenced`.

    Args:
        statement: an insert, update or delete, or ``text()``.
        parameters: as for `execute`: a dict, or a list of them.
        sequence: number of this write, for tables protected with ``p_writes => 'sequenced'``.
        bind: the engine of the lease's database, for a session that works with several.

    Raises:
        StaleToken, LeaseExpired, UnknownLease, WrongResource: (`DBAPIError`s too) the lease does not allow this write.
        DuplicateWrite, SequenceError: this write has been applied already, or comes too late.
        BadArgument: (a ValueError) not a session or connection over psycopg, AUTOCOMMIT, or a statement that reads.
    """
    (claim,) = claims_of([lease])
    if sequence is not None:
        claim = claim.with_sequence(sequence)
    core, awaited = core_of(target)
    engine = core_of_bind(bind)
    if getattr(statement, "is_select", False):
        raise BadArgument("a fenced statement writes", hint="Read with execute(); reading needs no lease.")

    def run(_: object = None) -> int:
        connection = connection_of(core, engine)
        if not connection.in_transaction():
            connection.begin()  # as the statement would
        present(connection, [claim])
        return _execute(core, statement, parameters)

    return run() if awaited is None else awaited.run_sync(run)


def _execute(core: Session | Connection, statement: Executable, parameters: Any) -> int:
    # Batches of an insert with RETURNING would not count their rows otherwise.
    result = core.execute(statement, parameters, execution_options={"preserve_rowcount": True})
    if isinstance(result, CursorResult):
        return result.rowcount
    # The ORM's bulk operations count nothing: they do one row for each dict, or raise.
    try:
        return len(result.all())
    except ResourceClosedError:  # it returns no rows
        return len(parameters)
