"""`fenced`: whatever begins a transaction on a session or connection, the first thing in it is the claims."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event
from sqlalchemy.engine import NestedTransaction, Transaction
from sqlalchemy.orm import Session, SessionTransaction

from pyfence._writing import Holding, claims_of
from pyfence.errors import BadArgument
from pyfence.sqlalchemy._present import present
from pyfence.sqlalchemy._targets import Bind, Target, connection_of, core_of, core_of_bind
from pyfence.types import Claim


def fenced(target: Target, *leases: Holding | Claim, bind: Bind | None = None) -> Fenced:
    """A block in which every transaction of `target` presents `leases`: the one that is open, and all that follow.

    Also after `commit()` and `rollback()`, inside `begin_nested()`, and again where a rollback to a savepoint took the
    claims away. So everything that runs there is covered: flushes of the ORM, bulk inserts, Core statements, `text()`.
    One round trip per transaction. Commits nothing; a transaction that is still open at the end of the block keeps its
    claims.

    ``with`` for a `Session` or `Connection`, ``async with`` for an `AsyncSession` or `AsyncConnection`.

    Args:
        target: the session or connection (or a scoped session's registry), over ``postgresql+psycopg``.
        leases: `Lease`, `AsyncLease` or `Claim`, at least one. Presented in the order of their names.
        bind: the engine (or connection) of the lease's database, for a session that works with several.

    Raises:
        StaleToken, UnknownLease: (`DBAPIError`s too) where a transaction begins, if a lease is not this holder's.
        LeaseLost: in a child process: the lease is its parent's.
        BadArgument: (a ValueError) not a session, not psycopg, or a connection in AUTOCOMMIT.
    """
    return Fenced(target, leases, bind)


class Fenced:
    """What `fenced` returns. Not re-entrant, and usable once at a time."""

    def __init__(self, target: Target, leases: tuple[Holding | Claim, ...], bind: Bind | None) -> None:
        self._core, self._awaited = core_of(target)
        self._bind = core_of_bind(bind)
        self._leases = leases
        self._listening: list[tuple[Session | Connection, str, Any]] = []
        # Where the claims were presented: they are gone when that transaction or savepoint is.
        self._presented: WeakKeyDictionary[Connection, Transaction] = WeakKeyDictionary()
        self._refused: Exception | None = None
        self._owed = False
        if not leases:
            raise BadArgument("no lease to present", hint="Pass at least one lease.")
        claims_of(leases)

    def __enter__(self) -> Self:
        if self._awaited is not None:
            raise BadArgument("this session is asynchronous", hint="Write: async with fenced(session, lease):")
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    async def __aenter__(self) -> Self:
        if self._awaited is None:
            raise BadArgument("this session is synchronous", hint="Write: with fenced(session, lease):")
        await self._awaited.run_sync(lambda _: self._start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        if self._listening:
            raise BadArgument("this block is entered already", hint="Call fenced() once for each block.")
        core = self._core
        if isinstance(core, Session):
            self._listen(core, "after_begin", self._session_began)
        else:
            self._listen(core, "begin", self._connection_begins)
            self._listen(core, "begin_twophase", self._connection_begins_twophase)
            self._listen(core, "before_cursor_execute", self._statement_comes)
        try:
            if core.in_transaction():
                self._present(connection_of(core, self._bind))
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        while self._listening:
            event.remove(*self._listening.pop())
        self._presented.clear()

    def _listen(self, target: Session | Connection, name: str, listener: Any) -> None:
        if (target, name, listener) not in self._listening:
            event.listen(target, name, listener)
            self._listening.append((target, name, listener))

    def _present(self, connection: Connection) -> None:
        inner = connection.get_nested_transaction() or connection.get_transaction()
        where = self._presented.get(connection)
        if inner is None or (where is not None and where.is_active):
            return
        present(connection, claims_of(self._leases))
        self._presented[connection] = inner
        if isinstance(inner, NestedTransaction):
            # A rollback to this savepoint takes the claims away: the next statement presents them anew.
            self._listen(connection, "before_cursor_execute", self._statement_comes)

    def _session_began(self, session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        if self._bind is None or connection is self._bind or connection.engine is self._bind:
            self._present(connection)

    def _connection_begins(self, connection: Connection) -> None:
        # The driver begins with its first statement, which this is. An exception here would leave SQLAlchemy without a
        # transaction to roll back, so it waits for the first statement of the caller's.
        self._presented.pop(connection, None)
        self._refused, self._owed = None, False
        try:
            present(connection, claims_of(self._leases))
        except Exception as exc:
            self._refused = exc
            if not connection.invalidated:
                connection.connection.rollback()

    def _connection_begins_twophase(self, connection: Connection, xid: object) -> None:
        # The driver wants to send the begin itself: the first statement of the caller's brings the claims.
        self._presented.pop(connection, None)
        self._refused, self._owed = None, True

    def _statement_comes(self, connection: Connection, *_: object) -> None:
        if self._refused is not None:
            raise self._refused
        if self._owed or connection in self._presented:
            self._present(connection)
            self._owed = False
