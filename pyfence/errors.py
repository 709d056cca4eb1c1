"""The exceptions of pyfence, and the one translation from what the driver raises.

Every refusal by the database has an SQLSTATE of class ``LF``. The driver knows none of them and raises a plain
``psycopg.DatabaseError``; `from_driver` turns that into the class named here and keeps the driver's exception as its
cause. Everything else (a serialization failure, a lost connection, a missing table) stays the driver's own exception,
so that retry loops keep working.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Protocol

import psycopg

from pyfence import _telemetry


class FenceError(Exception):
    """Base of everything that pyfence raises.

    Attributes:
        sqlstate: the class's SQLSTATE, or None for errors that only the client knows.
        detail: what exactly was wrong, or None.
        hint: the next thing to do, usually a command, or None.
        schema: schema of the protected table concerned, or of pyfence itself, or None.
        table: the protected table concerned, or None.
        resource: the resource of the lease the failing call was made for, where there was exactly one, or None.
    """

    sqlstate: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        schema: str | None = None,
        table: str | None = None,
        resource: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.schema = schema
        self.table = table
        self.resource = resource

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.sqlstate}]" if self.sqlstate else self.message]
        if self.detail:
            lines.append(f"Detail: {self.detail}")
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)


class StaleToken(FenceError):
    """The lease has been superseded by a newer token, or revoked. Stop the work: somebody else owns the resource."""

    sqlstate = "LF001"


class LeaseExpired(FenceError):
    """The lease has run out. It is not revived: acquire again and get a new token."""

    sqlstate = "LF002"


class ClaimMissing(FenceError):
    """A write to a protected table by a transaction that has presented no claim."""

    sqlstate = "LF004"


class WrongResource(FenceError):
    """The transaction's claims do not cover the resource of a row it touched (or that row's key is NULL)."""

    sqlstate = "LF005"


class UnknownLease(FenceError):
    """No such lease, or a wrong secret."""

    sqlstate = "LF006"


class DuplicateWrite(FenceError):
    """Already applied: the same sequence again, or a second write on a table that takes one write per token."""

    sqlstate = "LF007"


class SequenceError(FenceError):
    """The sequence went backwards."""

    sqlstate = "LF008"


class AuthorityQuarantined(FenceError):
    """The database's identity changed (promotion, restore) and an operator has to confirm its lineage first."""

    sqlstate = "LF009"


class BadArgument(FenceError, ValueError):
    """A value that no call accepts. Also a `ValueError`: most are found before anything is sent."""

    sqlstate = "LF010"


class SchemaMismatch(FenceError):
    """The schema in the database and this client do not fit together."""

    sqlstate = "LF011"


class LeaseHeld(FenceError):
    """Somebody else holds the lease.

    Attributes:
        owner: the holder's label, or None where the database did not say.
        token: the holder's token, or None.
        expires_at: when the lease ends unless it is renewed; aware, by the database's clock; or None.
        reason: 'held'; 'draining': free, but a transaction of an earlier holder is still open; 'queued', at the end of
            a wait: free, but others have waited for longer; or None.
        retry_in: how long to wait before it is worth asking again, or None.
    """

    sqlstate = "LF012"

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        schema: str | None = None,
        table: str | None = None,
        resource: str | None = None,
        owner: str | None = None,
        token: int | None = None,
        expires_at: datetime | None = None,
        reason: str | None = None,
        retry_in: timedelta | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint, schema=schema, table=table, resource=resource)
        self.owner = owner
        self.token = token
        self.expires_at = expires_at
        self.reason = reason
        self.retry_in = retry_in


class GuardBroken(FenceError):
    """A table's guard no longer fits the table (a key column was renamed or dropped). ``pyfence repair`` mends it."""

    sqlstate = "LF013"


LossReason = Literal["superseded", "expired", "unknown", "unrenewed", "released", "forked"]


class LeaseLost(FenceError):
    """This process has to assume that it no longer holds the lease. Raised by the client, never by the database.

    Attributes:
        token: the token of the lost lease.
        reason: 'superseded', 'expired' and 'unknown' are the database's answers to a renewal (LF001, LF002, LF006);
            'unrenewed': no renewal succeeded within the ttl, counted from the moment the last successful one was sent;
            'released': given back by `Lease.release`; 'forked': used in a child process.
    """

    def __init__(self, message: str, *, resource: str, token: int, reason: LossReason, hint: str | None = None) -> None:
        super().__init__(message, resource=resource, hint=hint)
        self.token = token
        self.reason = reason


class OutcomeUnknown(FenceError):
    """The server did not answer in time, or warned that the commit was not replicated: it may or may not have happened.

    An acquire whose outcome is unknown leaves at worst a lease that nobody uses, until its ttl is over. A write may be
    sent again with the same sequence on a 'sequenced' table, or looked up.
    """


_CLASSES: dict[str, type[FenceError]] = {
    cls.sqlstate: cls
    for cls in (
        StaleToken,
        LeaseExpired,
        ClaimMissing,
        WrongResource,
        UnknownLease,
        DuplicateWrite,
        SequenceError,
        AuthorityQuarantined,
        BadArgument,
        SchemaMismatch,
        LeaseHeld,
        GuardBroken,
    )
    if cls.sqlstate is not None
}
_ASSERT_FAILURE = "P0004"  # what a table protected with p_uncatchable raises; the LF code is in diag.constraint_name


class _Diagnostic(Protocol):
    @property
    def sqlstate(self) -> str | None: ...
    @property
    def constraint_name(self) -> str | None: ...


def code_of(diag: _Diagnostic) -> str | None:
    """The LF code of a driver's diagnostics, or None if the error is not pyfence's."""
    code = diag.constraint_name if diag.sqlstate == _ASSERT_FAILURE else diag.sqlstate
    return code if code is not None and code.startswith("LF") else None


def from_driver(exc: BaseException, *, resource: str | None = None) -> FenceError | None:
    """The pyfence error for a driver's exception, with that exception as its cause; None if it is not one of ours.

    Reads the diagnostic fields only, never the message. Also accepts SQLAlchemy's wrapper (its ``orig`` is used).
    """
    driver = getattr(exc, "orig", exc)
    if not isinstance(driver, psycopg.Error):
        return None
    diag = driver.diag
    code = code_of(diag)
    if code is None:
        return None
    error = _CLASSES.get(code, FenceError)(
        diag.message_primary or f"refused with {code}",
        detail=diag.message_detail,
        hint=diag.message_hint,
        schema=diag.schema_name or None,
        table=diag.table_name or None,
        resource=resource,
    )
    error.__cause__ = exc
    return error


@contextmanager
def translated(*, resource: str | None = None) -> Iterator[None]:
    """Raises pyfence's error instead of the driver's where the database refused with one of its codes."""
    try:
        yield
    except Exception as exc:
        error = from_driver(exc, resource=resource)
        if error is None:
            raise
        _telemetry.refused(error.sqlstate, error.message)
        raise error from exc
