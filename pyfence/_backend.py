"""What a client is made of, in one place: the source of its connections, its clock, its two lines for short calls."""

from __future__ import annotations

from dataclasses import dataclass

from pyfence._calls import Calls
from pyfence._clock import Timekeeper
from pyfence._connect import Source


@dataclass(frozen=True, slots=True)
class Backend:
    """Shared by a `Fence` and its leases.

    Attributes:
        calls: for acquire, renew and release; at most four at once.
        heartbeats: for renewals alone, which wait for no other call.
        timeout: seconds that one call may take.
    """

    source: Source
    timekeeper: Timekeeper
    calls: Calls
    heartbeats: Calls
    timeout: float

    @classmethod
    def over(cls, source: Source, *, timeout: float) -> Backend:
        timekeeper = Timekeeper()
        return cls(
            source=source,
            timekeeper=timekeeper,
            calls=Calls(source.open, timekeeper, limit=4),
            heartbeats=Calls(source.open, timekeeper, limit=1),
            timeout=timeout,
        )

    def close(self) -> None:
        """Closes the connections that the client itself has opened."""
        self.calls.close()
        self.heartbeats.close()
        self.source.close()
