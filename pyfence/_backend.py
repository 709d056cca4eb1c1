"""What a client is made of: the source of its connections, its clock, two lines for short calls, its queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pyfence._calls import Calls
from pyfence._clock import Timekeeper
from pyfence._connect import Connection
from pyfence._queue import Queue


class Opener(Protocol):
    """The half of a source that the sync and the async client share."""

    def open(self) -> Connection:
        """A new own connection, in autocommit. The client closes it. Blocks."""

    def close(self) -> None:
        """Closes what the source itself has opened; never the caller's pool or engine."""


S = TypeVar("S", bound=Opener)


@dataclass(frozen=True, slots=True)
class Backend(Generic[S]):
    """Shared by a client and its leases.

    Attributes:
        calls: for acquire, renew and release; at most four at once.
        heartbeats: for renewals alone, which wait for no other call.
        queue: the places of acquires that wait.
        timeout: seconds that one call may take.
    """

    source: S
    timekeeper: Timekeeper
    calls: Calls
    heartbeats: Calls
    queue: Queue
    timeout: float

    @classmethod
    def over(cls, source: S, *, timeout: float) -> Backend[S]:
        timekeeper = Timekeeper()
        calls = Calls(source.open, timekeeper, limit=4)
        return cls(
            source=source,
            timekeeper=timekeeper,
            calls=calls,
            # The connection that acquired is idle by then: a busy process need not open another one under pressure.
            heartbeats=Calls(source.open, timekeeper, limit=1, spare=calls),
            queue=Queue(source.open, calls),
            timeout=timeout,
        )

    def close(self) -> None:
        """Closes the connections that the client itself has opened."""
        self.queue.close()
        self.calls.close()
        self.heartbeats.close()
        self.source.close()
