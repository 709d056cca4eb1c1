"""The client's clock and its alarms. Never the time of day: a lease's expiry is judged by the database alone."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

log = logging.getLogger("pyfence")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two requests of one waiting acquire
_LONGEST_SILENCE = 30.0  # seconds between two requests of one that is called when the lease becomes free

# Counts on while the machine is suspended, where the system has such a clock: a lease runs out during a nap, too.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds on a clock that only goes forward and that no change of the date touches."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


@dataclass(order=True, slots=True)
class Alarm:
    """A moment on the clock of `now`, and what to do then."""

    when: float
    order: int
    action: Callable[[], float | None] | None = field(compare=False)

    def cancel(self) -> None:
        """The action will not start any more; one that has started may still be running."""
        self.action = None


class Timekeeper:
    """Runs short actions at given moments, in one daemon thread that exists while there is something to wait for.

    Actions do no I/O and raise nothing, so that none is late because of another. An action may give a later moment
    at which it wants to run again.
    """

    _LONGEST_NAP = 5.0  # seconds; the clock of `now` may have jumped over a suspension that the wait did not count
    _LINGER = 10.0  # seconds that the thread stays when nothing is left to do

    def __init__(self) -> None:
        self._alarms: list[Alarm] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def at(self, when: float, action: Callable[[], float | None]) -> Alarm:
        """Runs `action` at `when`, at once if that is past."""
        alarm = Alarm(when, next(self._order), action)
        with self._changed:
            heapq.heappush(self._alarms, alarm)
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="pyfence-clock", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down: no more alarms
                    return alarm
                self._thread = thread
            elif self._alarms[0] is alarm:
                self._changed.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._alarms and self._alarms[0].action is None:
                    heapq.heappop(self._alarms)
                if not self._alarms:
                    self._changed.wait(self._LINGER)
                    if not self._alarms:
                        self._thread = None
                        return
                    continue
                pause = self._alarms[0].when - now()
                if pause > 0:
                    self._changed.wait(min(pause, self._LONGEST_NAP))
                    continue
                alarm = heapq.heappop(self._alarms)
                action = alarm.action
            if action is not None:
                self._ring(alarm, action)

    def _ring(self, alarm: Alarm, action: Callable[[], float | None]) -> None:
        try:
            again = action()
        except Exception:
            log.exception("an alarm failed")
            return
        if again is not None:
            with self._changed:
                alarm.when = again
                heapq.heappush(self._alarms, alarm)


class Waiting:
    """When a waiting acquire asks again. Shared by the sync and the async client; does not wait itself."""

    def __init__(self, length: float | None) -> None:
        """`length`: seconds; 0 for not at all, None for ever."""
        self._deadline = None if length is None else now() + length
        self._longest = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds until the wait is over."""
        return math.inf if self._deadline is None else self._deadline - now()

    def pause(self, retry_in: timedelta | None, *, called: bool = False) -> float | None:
        """Seconds until the next request, or None when the wait is over.

        At the moment `retry_in` names if that is near, else earlier, for a holder that gives up early; more and more
        slowly, and scattered, so that many waiting processes do not ask in step. One request falls on the end of the
        wait. `called`: somebody says when the holder gives up early.
        """
        left = self.left
        if left <= 0:
            return None
        self._longest = min(self._longest * 2, _LONGEST_PAUSE)
        expected = None if retry_in is None else retry_in.total_seconds()
        if expected is not None and called:
            pause = min(expected + random.uniform(0, min(1.0, expected / 10 + 0.001)), _LONGEST_SILENCE)
        elif expected is not None and expected <= self._longest:
            pause = expected + random.uniform(0, min(0.05, expected / 10 + 0.001))
        else:
            pause = self._longest * random.uniform(0.5, 1)
        return min(pause, left)
