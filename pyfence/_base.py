"""What both clients are: a backend, a renewal thread, and a fresh start in a child process."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Generic, NoReturn

from pyfence._backend import Backend, S
from pyfence._clock import now
from pyfence._held import HeldLease
from pyfence._renewal import Renewer
from pyfence._state import LeaseState
from pyfence._writing import claims_of
from pyfence.types import Claim, Seconds, seconds

log = logging.getLogger("pyfence")


class BaseFence(Generic[S]):
    """The common half of `Fence` and `AsyncFence`. Nothing here waits for the database.

    Args:
        source_of: makes the source of connections, now and again in every child process.
        timeout: how long one call to the database may take.
    """

    def __init__(self, source_of: Callable[[], S], *, timeout: Seconds) -> None:
        self._source_of = source_of
        self._timeout = seconds(timeout, name="timeout")
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._backend = Backend.over(self._source_of(), timeout=self._timeout)
        self._renewer = Renewer(self._backend.heartbeats)
        self._closing = threading.Event()

    def _after_fork(self) -> None:
        # In a child process the connections, the threads and the leases are the parent's: start afresh, close nothing.
        if self._pid != os.getpid() and not self._closed:
            self._start()

    def _patience_at_end(self, state: LeaseState) -> float | None:
        """Ends the renewals of a lease at the end of its block. Seconds for giving it back; None: nothing to give."""
        if state.forked or sys.is_finalizing():  # a block that nobody ends: its threads and locks are gone already
            return None
        self._renewer.remove(state)
        if state.reason is not None:
            return None
        # Once the ttl is over there is nothing left to give back.
        return min(self._backend.timeout, max(0.1, state.deadline - now()))

    def _claims(self, leases: tuple[HeldLease[S] | Claim, ...]) -> list[Claim]:
        """The claims of leases, none of which was given back or is another process's."""
        self._after_fork()
        for lease in leases:
            if isinstance(lease, HeldLease):
                lease._state.raise_if_over()
        return claims_of(leases)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be pickled: make one in each process")

    def _close(self) -> None:
        self._after_fork()
        self._closed = True
        self._closing.set()
        self._renewer.close()
        self._backend.close()


def not_released(state: LeaseState, exc: Exception) -> None:
    """A failure to give a lease back at the end of its block is no reason to fail the block."""
    log.warning("lease %r was not released and ends with its ttl: %s", state.resource, exc)


def note_loss(state: LeaseState, exc: BaseException) -> None:
    """Says in the exception that ends a lease's block that the lease was lost, too."""
    if state.reason is not None and state.reason != "released":
        exc.add_note(f"pyfence: {state.loss(state.reason).message}")


def raise_loss(state: LeaseState) -> None:
    """Raises LeaseLost at the end of a lease's block that raised nothing itself."""
    if state.reason is not None and state.reason != "released":
        state.fail(state.reason)
