"""The SQL that the client sends, and how rows become values. The only place with SQL text; no I/O.

Each function gives a `Statement` for any cursor, sync or async. Parameters are bound, never put into the text, so that
no secret is ever part of a statement. No parameter is a timestamp: lengths of time travel as seconds, and only the
database looks at a clock. Every name is qualified, whatever the session's search_path is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyfence._json import to_json
from pyfence.errors import BadArgument
from pyfence.types import Claim, Grant, Holder, Renewed

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its bound parameters. The parameters hold secrets: they are in no text form of it."""

    sql: str
    params: tuple[object, ...]

    def __repr__(self) -> str:
        return f"Statement({self.sql!r}, <{len(self.params)} parameters>)"


# Calls that change a lease are transactions of their own at READ COMMITTED, whatever the session's default is.
BEGIN = Statement("begin isolation level read committed", ())
COMMIT = Statement("commit", ())

NEEDED_SCHEMA = "0001"
"""The oldest revision of the schema that this client works with. Newer ones keep the functions it calls."""

SCHEMA_VERSION = Statement("select fence.schema_version()", ())

# The condition names no column: where it is false the executor never starts the call, and there is no row.
_ACQUIRE = f"""\
select granted, resource, token, secret, owner, expires_at, reason, retry_in
from fence.acquire(
  %s::pg_catalog.text, pg_catalog.make_interval(secs => %s::pg_catalog.float8), %s::pg_catalog.text)
where fence.schema_version() collate "C" >= '{NEEDED_SCHEMA}'"""
_ACQUIRE_IN_TURN = f"""\
select granted, resource, token, secret, owner, expires_at, reason, retry_in, ticket
from fence._acquire_in_turn(
  %s::pg_catalog.text, pg_catalog.make_interval(secs => %s::pg_catalog.float8), %s::pg_catalog.text,
  %s::pg_catalog.int8, %s::pg_catalog.int4)
where fence.schema_version() collate "C" >= '{NEEDED_SCHEMA}'"""
_DECLINE = "select fence._decline(%s::pg_catalog.int8)"
_RENEW = """\
select fence.renew(%s::pg_catalog.text, %s::pg_catalog.int8, %s::pg_catalog.text,
  pg_catalog.make_interval(secs => %s::pg_catalog.float8))"""
_RENEW_ALL = """\
select resource, expires_at, code
from fence.renew_all(%s::pg_catalog.text[], %s::pg_catalog.int8[], %s::pg_catalog.text[], null)"""
_RELEASE = "select fence.release(%s::pg_catalog.text, %s::pg_catalog.int8, %s::pg_catalog.text)"
_FINISHED = """\
select fence._finished(%s::pg_catalog.text, %s::pg_catalog.int8, %s::pg_catalog.text, %s::pg_catalog.text, %s)"""
_PRESENT = """\
select fence.present(%s::pg_catalog.text, %s::pg_catalog.int8, %s::pg_catalog.text, %s::pg_catalog.int8)"""
_PRESENT_ALL = """\
select fence.present_all(
  %s::pg_catalog.text[], %s::pg_catalog.int8[], %s::pg_catalog.text[], %s::pg_catalog.int8[])"""
_FENCED_UPDATE = """\
select fence.fenced_update(%s::pg_catalog.regclass, %s::pg_catalog.jsonb, %s::pg_catalog.jsonb,
  %s::pg_catalog.text, %s::pg_catalog.int8, %s::pg_catalog.text, %s::pg_catalog.int8)"""


def acquire(resource: str, ttl: float, owner: str) -> Statement:
    """Asks for a lease of `ttl` seconds. Its row is for `granted`."""
    return Statement(_ACQUIRE, (resource, ttl, owner))


def acquire_in_turn(resource: str, ttl: float, owner: str, *, ticket: int | None, listener: int | None) -> Statement:
    """The same for somebody who waits, after all who came before. Its row is for `granted` and `ticket`.

    `ticket`: None for a first request, 0 to queue up, then what the answer says. `listener`: the backend that hears
    the calls for it, see `listen`.
    """
    return Statement(_ACQUIRE_IN_TURN, (resource, ttl, owner, ticket, listener))


def ticket(row: Row) -> int | None:
    """The place in the queue that `acquire_in_turn` answered."""
    place: int | None = row[8]
    return place


BACKEND = Statement("select pg_catalog.pg_backend_pid()", ())


def listen(backend: int) -> Statement:
    """Hears the calls for tickets whose listener is `backend`, this connection's own. The payload is the ticket."""
    return Statement(f"listen fence_{int(backend)}", ())


def decline(ticket: int) -> Statement:
    """Gives a place in the queue back."""
    return Statement(_DECLINE, (ticket,))


def granted(row: Row) -> Grant | Holder:
    """What `acquire` and `acquire_in_turn` answered."""
    is_granted, resource, token, secret, owner, expires_at, reason, retry_in = row[:8]
    if is_granted:
        return Grant(Claim(resource, token, secret), owner, expires_at)
    return Holder(resource, owner, token, expires_at, reason or "held", retry_in or timedelta(0))


def renew(claim: Claim, ttl: float | None) -> Statement:
    """Extends one lease by `ttl` seconds from now; None: by the ttl of the grant. One value: the new expiry."""
    return Statement(_RENEW, (claim.resource, claim.token, claim.secret, ttl))


def renew_all(claims: Sequence[Claim]) -> Statement:
    """Extends each lease by the ttl of its grant. Its rows are for `renewed`; they come in the order of `claims`."""
    return Statement(_RENEW_ALL, ([c.resource for c in claims], [c.token for c in claims], [c.secret for c in claims]))


def renewed(rows: Sequence[Row]) -> list[Renewed]:
    """What `renew_all` answered."""
    return [Renewed(resource, expires_at, code) for resource, expires_at, code in rows]


def expiry(row: Row) -> datetime:
    """What `renew` answered."""
    (expires_at,) = row
    assert isinstance(expires_at, datetime)
    return expires_at


def release(claim: Claim) -> Statement:
    """Gives one lease back. One value: whether this claim was still its holder."""
    return Statement(_RELEASE, (claim.resource, claim.token, claim.secret))


def finished(claim: Claim, run: str, *, record: bool) -> Statement:
    """One value: whether the run called `run` was finished under the lease's resource; `record`: it is now."""
    return Statement(_FINISHED, (claim.resource, claim.token, claim.secret, run, record))


def present(claims: Sequence[Claim]) -> Statement:
    """Presents claims in the transaction it runs in, in the order of their names, in one statement."""
    if not claims:
        raise BadArgument("no lease to present", hint="Pass at least one lease.")
    if len(claims) == 1:
        claim = claims[0]
        return Statement(_PRESENT, (claim.resource, claim.token, claim.secret, claim.sequence))
    ordered = sorted(claims, key=lambda claim: claim.resource.encode())
    sequences = [c.sequence for c in ordered]
    return Statement(
        _PRESENT_ALL,
        (
            [c.resource for c in ordered],
            [c.token for c in ordered],
            [c.secret for c in ordered],
            sequences if any(s is not None for s in sequences) else None,
        ),
    )


def fenced_update(table: object, key: Mapping[str, object], changes: Mapping[str, object], claim: Claim) -> Statement:
    """Changes the one row that `key` names. One value: 1, or 0 where there is no such row."""
    return Statement(
        _FENCED_UPDATE,
        (
            table_name(table),
            to_json(key, name="key"),
            to_json(changes, name="changes"),
            claim.resource,
            claim.token,
            claim.secret,
            claim.sequence,
        ),
    )


def table_name(table: object) -> str:
    """The text that PostgreSQL reads as a table's name (``regclass``); it is bound as a value, never put into SQL.

    A str is read as SQL reads a name: ``report`` and ``app.report`` are folded to lower case and found by the
    search_path, ``"Größe 表"`` needs its double quotes. A tuple ``("app", "Größe 表")`` or a `psycopg.sql.Identifier`
    is quoted here and taken letter by letter.
    """
    if isinstance(table, str):
        text = table
    elif isinstance(table, tuple) and 1 <= len(table) <= 2 and all(isinstance(p, str) and p for p in table):
        text = ".".join('"' + part.replace('"', '""') + '"' for part in table)
    elif callable(as_string := getattr(table, "as_string", None)):
        text = as_string(None)
    else:
        raise BadArgument(
            f"not a table name: {type(table).__name__}", hint='Pass "table", "schema.table" or ("schema", "table").'
        )
    if not text or "\0" in text or text.isdigit():
        # A number would be taken for an object id.
        raise BadArgument(f"not a table name: {table!r}", hint="Quote it as in SQL: '\"2024\"', or pass a tuple.")
    return text
