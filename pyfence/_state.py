"""What a process knows of a lease it holds: its claim, how long to believe in it, whether it is lost. No I/O."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NoReturn

import psycopg

from pyfence import _telemetry
from pyfence._clock import Alarm, Timekeeper, now
from pyfence.errors import LeaseLost, LossReason
from pyfence.types import Claim, Grant

log = logging.getLogger("pyfence")

_LOST: dict[LossReason, tuple[str, str | None]] = {
    "superseded": ("was superseded or revoked", "Stop the work: the resource may belong to somebody else."),
    "expired": ("expired in the database", "Renew earlier or take a longer ttl; acquire again for a new token."),
    "unknown": ("is not known to the database", "Acquire again for a new token."),
    "unrenewed": ("was not renewed within its ttl", "Check the connection to the database; acquire again."),
    "released": ("has been released", "Acquire again for a new token."),
    "forked": ("belongs to the parent process", "Acquire a lease of its own in the child process."),
}

LOST_BY_CODE: dict[str, LossReason] = {
    "LF001": "superseded",
    "LF002": "expired",
    "LF006": "unknown",
    "LF009": "superseded",  # whatever ends the quarantine begins a new lineage, and no older lease lives in it
}
"""The answers to a renewal that are final. All others are tried again until the local deadline."""


class LeaseState:
    """A held lease, as far as this process can know. Shared by the sync and the async client. Thread-safe.

    The local deadline counts from the moment the last successful request was *sent*, plus its ttl: the database began
    to count later than that, so this process never believes longer than the database. It is advice all the same: a
    process may be paused right after looking.
    """

    def __init__(self, grant: Grant, *, ttl: float, sent: float) -> None:
        self.resource = grant.claim.resource
        self.token = grant.claim.token
        self.owner = grant.owner
        self.ttl = ttl
        self.lost = threading.Event()
        self.on_lost: Callable[[], object] | None = None
        self.wake: Callable[[], object] | None = None  # told that `lost` is set, in whatever thread; takes no time
        self.release_sent = False
        self.renewing = threading.Lock()  # held by whoever has a renewal of this lease on its way
        self._claim = grant.claim
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reason: LossReason | None = None
        self._alarm: Alarm | None = None
        self._expires_at = grant.expires_at
        self._sent = sent
        self._deadline = sent + ttl

    @property
    def expires_at(self) -> datetime:
        """The expiry the database last gave: aware, by its clock. Never compared with the client's."""
        return self._expires_at

    @property
    def deadline(self) -> float:
        """On the clock of `pyfence._clock.now`: from here on this process must not believe that it holds the lease."""
        return self._deadline

    @property
    def sent(self) -> float:
        """When the last successful request was sent."""
        return self._sent

    @property
    def period(self) -> float:
        """Seconds that the last successful request bought."""
        return self._deadline - self._sent

    @property
    def claim(self) -> Claim:
        """The claim. Raises LeaseLost in a child process: it is the parent's."""
        self.raise_if_forked()
        return self._claim

    @property
    def forked(self) -> bool:
        return self._pid != os.getpid()

    @property
    def reason(self) -> LossReason | None:
        """Why the lease is not held any more, or None."""
        return self._reason

    @contextmanager
    def turn(self, timeout: float) -> Iterator[float]:
        """Alone with the lease for a request about it. Gives the seconds that are left of `timeout`.

        Raises:
            psycopg.errors.ConnectionTimeout: an earlier request about this lease has not been answered yet.
        """
        deadline = now() + timeout
        if not self.renewing.acquire(timeout=timeout):
            raise psycopg.errors.ConnectionTimeout("nothing was sent: an earlier renewal has not been answered yet")
        try:
            yield max(0.0, deadline - now())
        finally:
            self.renewing.release()

    def watch(self, timekeeper: Timekeeper) -> None:
        """From now on `lost` is set at the deadline. Does not keep the lease from being forgotten."""
        me = weakref.ref(self)

        def ring() -> float | None:
            state = me()
            return state._check() if state is not None else None

        self._alarm = timekeeper.at(self._deadline, ring)

    def _check(self) -> float | None:
        if self._reason is not None:
            return None
        if now() < self._deadline:
            return self._deadline
        self.lose("unrenewed")
        return None

    def extended(self, *, sent: float, ttl: float, expires_at: datetime) -> None:
        """A request sent at `sent` was answered: the lease lasts until `expires_at`, `ttl` after it arrived.

        Called with `renewing` held: answers come in the order of the requests.
        """
        with self._lock:
            self._sent, self._deadline, self._expires_at = sent, sent + ttl, expires_at
        _telemetry.renewed(self.resource, self.token)

    def lose(self, reason: LossReason) -> None:
        """Marks the lease as lost, once and for good, and tells whoever asked to be told."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            tell, self.on_lost = self.on_lost, None
        self._stop_alarm()
        self.lost.set()
        if self.wake is not None:
            self.wake()
        if reason == "released":
            return
        _telemetry.lost(reason)
        log.warning("lease %r, token %d, %s", self.resource, self.token, _LOST[reason][0])
        if tell is not None:
            self._tell(tell)

    def _tell(self, tell: Callable[[], object]) -> None:
        # In a thread of its own: it may take its time, and the alarms and renewals of other leases may not.
        def run() -> None:
            try:
                tell()
            except Exception:
                log.exception("on_lost of lease %r failed", self.resource)

        try:
            threading.Thread(target=run, name="pyfence-on-lost", daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down: no new threads
            run()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def raise_if_lost(self) -> None:
        """Raises LeaseLost if this process has to assume that it no longer holds the lease. Asks nobody."""
        self.raise_if_forked()
        if self._reason is None and now() >= self._deadline:
            self.lose("unrenewed")
        if self._reason is not None:
            self.fail(self._reason)

    def raise_if_forked(self) -> None:
        """Raises LeaseLost if the lease is another process's."""
        if self.forked:
            self.fail("forked")

    def raise_if_over(self) -> None:
        """Raises LeaseLost if the lease was given back, or is another process's. Whether it is lost is not asked."""
        self.raise_if_forked()
        if self._reason == "released":
            self.fail("released")

    def loss(self, reason: LossReason) -> LeaseLost:
        what, hint = _LOST[reason]
        return LeaseLost(
            f"lease {self.resource!r}, token {self.token}, {what}",
            resource=self.resource,
            token=self.token,
            reason=reason,
            hint=hint,
        )

    def fail(self, reason: LossReason) -> NoReturn:
        raise self.loss(reason)

    def __reduce__(self) -> Any:
        raise TypeError("a lease belongs to the process that acquired it and cannot be pickled")
