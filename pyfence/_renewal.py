"""Keeps leases alive: one thread, one connection and one statement for all the leases of a client that are due."""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import weakref

from pyfence import _statements
from pyfence._calls import Calls
from pyfence._clock import now
from pyfence._state import LOST_BY_CODE, LeaseState

log = logging.getLogger("pyfence")

_LARGEST_BATCH = 10_000
_FIRST_RETRY, _LONGEST_RETRY = 0.05, 1.0  # seconds
_SHORTEST_TRY, _LONGEST_TRY = 1.0, 5.0  # seconds


class Renewer:
    """Renews the leases it was given, each at about a third of its ttl, until it is lost or taken back.

    What the database says is final (superseded, expired, unknown) ends a lease. Everything else, a lost connection, a
    read-only server, a locked table, a deadline, is tried again on a fresh connection, more and more slowly, until the
    lease's own deadline; the lease's alarm sets `lost` then, whatever this thread is waiting for.

    It does not keep a lease from being forgotten: one that nobody refers to any more, because its block was dropped
    without being left, is not renewed, and ends with its ttl.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._queue: list[tuple[float, int, weakref.ref[LeaseState]]] = []
        self._held: weakref.WeakSet[LeaseState] = weakref.WeakSet()
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failures = 0

    def add(self, lease: LeaseState) -> None:
        """Renews `lease` from now on."""
        with self._changed:
            self._held.add(lease)
            self._push(lease, _next_renewal(lease))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="pyfence-renewal", daemon=True)
                self._thread.start()
            else:
                self._changed.notify()

    def remove(self, lease: LeaseState) -> None:
        """Stops renewing `lease`; one renewal may still be on its way."""
        with self._changed:
            self._held.discard(lease)

    def close(self) -> None:
        """Stops renewing everything. The thread ends after the renewal that is on its way."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._queue.clear()
            self._changed.notify()

    def _push(self, lease: LeaseState, when: float) -> None:
        heapq.heappush(self._queue, (when, next(self._order), weakref.ref(lease)))

    def _run(self) -> None:
        while True:
            with self._changed:
                batch = self._due()
                while not batch:
                    if self._closed or not self._queue:
                        self._thread = None
                        return
                    self._changed.wait(max(0.0, self._queue[0][0] - now()))
                    batch = self._due()
                timeout = self._patience()
            self._round(batch, timeout)

    def _due(self) -> list[LeaseState]:
        """Takes the leases that are due, and those that soon will be, off the queue."""
        batch: list[LeaseState] = []
        soon = now()
        while self._queue and len(batch) < _LARGEST_BATCH:
            when, _, reference = self._queue[0]
            lease = reference()
            if lease is None or not self._is_held(lease):
                heapq.heappop(self._queue)
                continue
            if when > soon:
                break
            if not batch:
                soon += lease.period / 12
            heapq.heappop(self._queue)
            batch.append(lease)
        return batch

    def _is_held(self, lease: LeaseState) -> bool:
        if lease.reason is not None:
            self._held.discard(lease)
        return lease in self._held

    def _patience(self) -> float:
        """How long one attempt may take, so that the lease with the least time left gets another one."""
        left = min((lease.deadline for lease in self._held), default=now()) - now()
        return min(max(left / 3, _SHORTEST_TRY), _LONGEST_TRY)

    def _round(self, batch: list[LeaseState], timeout: float) -> None:
        # A lease that is not free is being renewed by its holder this very moment.
        free = [lease for lease in batch if lease.renewing.acquire(blocking=False)]
        busy = set(batch).difference(free)
        try:
            failed = self._renew(free, timeout) if free else []
        except Exception as exc:
            # Not only psycopg's errors: a source may raise anything, and the next attempt may do better.
            failed = free
            if self._failures == 0:
                reason = str(exc).partition("\n")[0]
                log.warning("renewing %d leases failed, trying again: %s", len(free), reason)
        finally:
            for lease in free:
                lease.renewing.release()
        self._failures = self._failures + 1 if failed else 0
        again = busy.union(failed)
        pause = min(_FIRST_RETRY * 2 ** min(self._failures - 1, 10), _LONGEST_RETRY)
        with self._changed:
            for lease in filter(self._is_held, batch):
                retry = now() + pause * random.uniform(0.5, 1)
                self._push(lease, retry if lease in again else _next_renewal(lease))

    def _renew(self, leases: list[LeaseState], timeout: float) -> list[LeaseState]:
        """One round trip. Gives the leases to try again."""
        sent = now()
        statement = _statements.renew_all([lease.claim for lease in leases])
        rows = _statements.renewed(self._calls.run(statement, timeout=timeout, cancel=False))
        failed = []
        for lease, row in zip(leases, rows, strict=True):
            if row.code is None and row.expires_at is not None:
                lease.extended(sent=sent, ttl=lease.ttl, expires_at=row.expires_at)
            elif row.code in LOST_BY_CODE:
                lease.lose(LOST_BY_CODE[row.code])
            else:
                failed.append(lease)
                if self._failures == 0:
                    log.warning("renewing lease %r gave %s, trying again", lease.resource, row.code)
        return failed


def _next_renewal(lease: LeaseState) -> float:
    """A third of the ttl after the last success, a little earlier by chance, so that processes do not renew in step."""
    return lease.sent + lease.period / 3 * random.uniform(0.85, 1.0)
