"""Presenting claims, and writing under them: on the caller's connection, or in a transaction of pyfence's making."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from pyfence import _statements, _telemetry
from pyfence._backend import Backend, S
from pyfence._calls import Unreplicated, Watch, execute, pipelined
from pyfence._clock import now
from pyfence._connect import AnyConnection, Connection, Source
from pyfence.errors import BadArgument, translated
from pyfence.types import Claim


class Holding(Protocol):
    """A lease, sync or async: what has a claim."""

    @property
    def claim(self) -> Claim: ...


Isolation = psycopg.IsolationLevel | str


def present(conn: Any, *leases: Holding | Claim) -> None:
    """Presents leases in the caller's transaction: until it ends, its writes to what they cover are accepted.

    Joins the transaction that is open, or opens it the way any statement on that connection would; never commits.
    Several leases are presented in the order of their names, in one round trip. A lease that is presented is not taken
    over before the transaction ends.

    Args:
        conn: a psycopg `Connection`, or a SQLAlchemy `Connection` or `Session` over psycopg.
        leases: `Lease` or `Claim` objects, at least one.

    Raises:
        StaleToken: superseded, revoked or released.
        UnknownLease: no such lease, or a wrong secret.
        BadArgument: an autocommit connection outside a transaction: the claim would be gone with its own statement.
        psycopg.errors.SerializationFailure: the transaction's snapshot is older than the lease. Retry it.
    """
    claims = claims_of(leases)
    statement = _statements.present(claims)
    driver = _joined(conn)
    if driver.autocommit and not _in_transaction(driver):
        raise outside_transaction()
    with translated(resource=only(claims)):
        execute(driver, statement).fetchall()


def fenced_update(
    conn: Any,
    table: object,
    key: Mapping[str, object],
    changes: Mapping[str, object],
    lease: Holding | Claim,
    *,
    sequence: int | None = None,
) -> int:
    """Changes one row of a protected table under a lease, on the caller's connection. Gives 1, or 0: no such row.

    On an autocommit connection outside a transaction this is one round trip, committed. On any other it joins the
    caller's transaction (or opens it, as any statement would) and never commits.

    Args:
        conn: a psycopg `Connection`, or a SQLAlchemy `Connection` or `Session` over psycopg.
        table: ``"report"`` or ``"app.report"``, read as SQL reads a name (``'"Größe 表"'`` needs its quotes); or a
            tuple ``("app", "Größe 表")`` or `psycopg.sql.Identifier`, taken letter by letter.
        key: column to value; exactly a unique key of the table.
        changes: column to new value; see `pyfence._json.to_json` for the types.
        lease: covers the row, before and after the change.
        sequence: number of this write, for tables protected with ``p_writes => 'sequenced'``.

    Raises:
        StaleToken, LeaseExpired, UnknownLease, WrongResource: the lease does not allow this write; nothing was changed.
        DuplicateWrite, SequenceError: this write has been applied already, or comes too late.
        BadArgument: (a ValueError) no unique key, an unknown column, a value that has no JSON form.
    """
    (claim,) = claims_of([lease])
    statement = _statements.fenced_update(table, key, changes, numbered(claim, sequence))
    driver = _joined(conn)
    with translated(resource=claim.resource):
        return count(execute(driver, statement).fetchone())


def fenced_update_alone(
    backend: Backend[Source],
    table: object,
    key: Mapping[str, object],
    changes: Mapping[str, object],
    claim: Claim,
) -> int:
    """`fenced_update` on a connection of the source: one round trip, committed, and within the backend's timeout."""
    statement = _statements.fenced_update(table, key, changes, claim)
    with (
        translated(resource=claim.resource),
        backend.source.work(backend.timeout) as conn,
        _set(conn, autocommit=True),
        watched(backend, conn),
        Unreplicated(conn),
    ):
        return count(execute(conn, statement).fetchone())


@contextmanager
def transaction(
    backend: Backend[Source], claims: Sequence[Claim], *, isolation: Isolation | None = None
) -> Iterator[Connection]:
    """A transaction on a connection of the source, with the claims presented: committed at the end of the block."""
    statement = _statements.present(claims)
    with (
        _telemetry.span("pyfence.transaction", *(claim.resource for claim in claims)),
        translated(resource=only(claims)),
        backend.source.work(backend.timeout) as conn,
        # Autocommit, so that the only begin is ours: else the driver sends its own, in a round trip of its own.
        _set(conn, autocommit=True, isolation_level=isolation_level(isolation)),
        Unreplicated(conn),
        ExitStack() as block,
    ):
        # The begin travels with the claims. What the block does afterwards has no deadline: it is the caller's.
        with watched(backend, conn), pipelined(conn):
            _begin(backend, conn, block)
            execute(conn, statement)
        yield conn


def _begin(backend: Backend[Source], conn: Connection, block: ExitStack) -> None:
    # Not conn.transaction(), which waits for the server twice when it is entered in a pipeline.
    transaction = psycopg.Transaction(conn)

    def end(kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> bool | None:
        with watched(backend, conn):
            return transaction.__exit__(kind, exc, trace)

    transaction.__enter__()
    block.push(end)


def watched(backend: Backend[S], conn: AnyConnection) -> Watch:
    """The deadline of one exchange with the server: begin and present, a single write, or the commit."""
    return Watch(conn, backend.timekeeper, now() + backend.timeout)


def claims_of(leases: Sequence[object]) -> list[Claim]:
    """The claims of leases (or of claims)."""
    claims = []
    for lease in leases:
        claim = lease if isinstance(lease, Claim) else getattr(lease, "claim", None)
        if not isinstance(claim, Claim):
            raise BadArgument(
                f"not a lease: {type(lease).__name__}", hint="Pass what acquire() or lease() gave, or its claim."
            )
        claims.append(claim)
    return claims


def outside_transaction() -> BadArgument:
    return BadArgument(
        "a lease can only be presented inside a transaction",
        detail="This connection commits by itself: the claim would be gone before the next statement.",
        hint="Open a transaction first (`conn.transaction()`), or use fenced_update() for a single write.",
    )


def not_a_connection(value: object, kind: str, instead: str) -> BadArgument:
    return BadArgument(
        f"not {kind} psycopg or SQLAlchemy connection: {type(value).__name__}",
        hint=f"Pass {instead} over postgresql+psycopg.",
    )


def numbered(claim: Claim, sequence: int | None) -> Claim:
    return claim if sequence is None else claim.with_sequence(sequence)


def only(claims: Sequence[Claim]) -> str | None:
    return claims[0].resource if len(claims) == 1 else None


def count(row: tuple[Any, ...] | None) -> int:
    """The number of rows that `fenced_update` answered."""
    assert row is not None
    return int(row[0])


def _joined(conn: Any) -> Connection:
    """The driver's connection under what the caller passed, after opening the caller's transaction where it has one."""
    if isinstance(conn, psycopg.Connection):
        return conn
    driver: Any = None
    if callable(getattr(conn, "connection", None)):  # a Session: this begins its transaction
        conn = conn.connection()
    if hasattr(conn, "in_transaction"):  # SQLAlchemy's Connection
        driver = conn.connection.driver_connection
        if isinstance(driver, psycopg.Connection) and not driver.autocommit and not conn.in_transaction():
            conn.begin()  # as its first statement would
    else:
        driver = getattr(conn, "driver_connection", None)
    if isinstance(driver, psycopg.Connection):
        return driver
    raise not_a_connection(conn, "a synchronous", "a psycopg Connection, or a SQLAlchemy Connection or Session")


def _in_transaction(conn: Connection) -> bool:
    if is_pipelined(conn):
        with conn.pipeline():
            pass  # a synchronization point, after which the status is true
    return in_transaction(conn)


def is_pipelined(conn: AnyConnection) -> bool:
    return conn.pgconn.pipeline_status != PipelineStatus.OFF


def in_transaction(conn: AnyConnection) -> bool:
    return conn.info.transaction_status != TransactionStatus.IDLE


def isolation_level(isolation: Isolation | None) -> psycopg.IsolationLevel | None:
    """The driver's name for an isolation level."""
    if isolation is None or isinstance(isolation, psycopg.IsolationLevel):
        return isolation
    try:
        return psycopg.IsolationLevel[isolation.upper().replace(" ", "_")]
    except (KeyError, AttributeError):
        raise BadArgument(
            f"no such isolation level: {isolation!r}",
            hint="Pass 'READ COMMITTED', 'REPEATABLE READ' or 'SERIALIZABLE'.",
        ) from None


@contextmanager
def _set(conn: Connection, **settings: Any) -> Iterator[None]:
    """Attributes of an idle connection for the length of the block. None leaves one as it is. No round trip."""
    before = {name: getattr(conn, name) for name, value in settings.items() if value is not None}
    for name in before:
        setattr(conn, name, settings[name])
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # a dead connection, which its pool throws away
            for name, value in before.items():
                setattr(conn, name, value)
