"""Ending in order: Ctrl-C, SIGTERM and a closed terminal become one exception, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody wants us to end. No `Exception`, so that nothing takes it for a failure to be handled."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """The first such signal raises `Interrupted` in the block; later ones are ignored, for cleaning up takes a moment.

    Signals reach the main thread only: in another thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal caught
        if not caught:
            caught = True
            raise Interrupted(number)

    # A signal that is ignored already stays so: nohup means it.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    changed = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in changed:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Such signals are ignored in the block: it cleans up, after which we end anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
