"""Small values shared by every part of the client, and the checks on what a caller passes in. No I/O."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NoReturn

from pyfence.errors import BadArgument, LeaseHeld

_STATES = {"draining": "being drained", "queued": "waited for"}

Seconds = float | timedelta
"""A length of time: seconds as int or float, or a `timedelta`."""

MAX_TTL = timedelta(days=1)
MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Claim:
    """What a transaction presents to write: resource, token, secret, and a sequence where the table asks for one.

    The secret is in no text form of a claim, and a claim cannot be pickled: it belongs to the process that acquired it.
    """

    resource: str
    token: int
    secret: str = field(repr=False)
    sequence: int | None = None

    def with_sequence(self, sequence: int | None) -> Claim:
        """The same claim for the write numbered `sequence`, for tables protected with ``p_writes => 'sequenced'``."""
        return replace(self, sequence=_checked_sequence(sequence))

    def __repr__(self) -> str:
        sequence = "" if self.sequence is None else f", sequence={self.sequence}"
        return f"Claim(resource={self.resource!r}, token={self.token}, secret=<redacted>{sequence})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Claim holds a secret and cannot be pickled")


@dataclass(frozen=True, slots=True)
class Grant:
    """A granted lease: what `acquire` answered."""

    claim: Claim
    owner: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the lease instead: what `acquire` answered when it did not grant."""

    resource: str
    owner: str
    token: int
    expires_at: datetime
    reason: str
    retry_in: timedelta

    def as_error(self) -> LeaseHeld:
        draining = self.reason == "draining"
        return LeaseHeld(
            f"lease {self.resource!r} is {_STATES.get(self.reason, 'held')}",
            detail=(
                f"A transaction of owner {self.owner!r}, token {self.token}, is still open."
                if draining
                else "Others have waited for longer."
                if self.reason == "queued"
                else f"Owner {self.owner!r}, token {self.token}, until {self.expires_at.isoformat()} unless renewed."
            ),
            hint=f"Try again in {self.retry_in.total_seconds():.3f} s, or pass wait=SECONDS.",
            resource=self.resource,
            owner=self.owner,
            token=self.token,
            expires_at=self.expires_at,
            reason=self.reason,
            retry_in=self.retry_in,
        )


@dataclass(frozen=True, slots=True)
class Renewed:
    """One row of a batch renewal: `code` is None where the lease was renewed, else the LF code or SQLSTATE."""

    resource: str
    expires_at: datetime | None
    code: str | None


def seconds(value: object, *, name: str, maximum: timedelta | None = MAX_TTL, zero: bool = False) -> float:
    """`value` as float seconds, or BadArgument (a ValueError): not a number, not finite, out of range.

    Args:
        zero: whether 0 is allowed.
        maximum: the largest allowed value, None for no limit.
    """
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    else:
        raise BadArgument(
            f"{name} must be seconds or a timedelta, not {type(value).__name__}",
            hint=f"Pass a number such as {name}=30, or timedelta(seconds=30).",
        )
    if not math.isfinite(result) or result < 0 or (result == 0 and not zero):
        raise BadArgument(f"{name} must be {'zero or more' if zero else 'above zero'} and finite, not {value!r}")
    if maximum is not None and result > maximum.total_seconds():
        raise BadArgument(
            f"{name} must be at most {maximum.total_seconds():.0f} seconds, not {value!r}",
            hint="Take a shorter ttl and renew while the work goes on: fence.lease() does so by itself.",
        )
    return result


def ttl_seconds(value: object) -> float:
    """A ttl as float seconds; the database counts in microseconds, so less than one would be no time at all."""
    result = seconds(value, name="ttl")
    if result < 1e-6:
        raise BadArgument(f"ttl must be at least one microsecond, not {value!r}")
    return result


def checked_text(value: object, *, name: str) -> str:
    """`value` if it is a text that PostgreSQL can store and that is short enough for a name; else BadArgument."""
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise BadArgument(f"{name} must not be empty", hint="Pass a name such as 'report:1'.")
    if "\0" in value:
        raise BadArgument(f"{name} must not hold a NUL character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadArgument(f"{name} must be valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise BadArgument(
            f"{name} must be at most {MAX_NAME_BYTES} bytes, not {size}",
            hint="Use a shorter name, for example a hash of the long part.",
        )
    return value


def _checked_sequence(sequence: object) -> int | None:
    if sequence is None:
        return None
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not -(2**63) <= sequence < 2**63:
        raise BadArgument(f"sequence must be an int that fits in 64 bits, not {sequence!r}")
    return sequence


def default_owner() -> str:
    """The label of a lease whose owner was not given: 'host:pid'. A label, never an identity."""
    return f"{socket.gethostname()}:{os.getpid()}"
