"""The queue for a lease as a client sees it: its places, and one connection that hears when they are called."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyfence import _statements
from pyfence._calls import Calls, execute, shut_down
from pyfence._clock import now
from pyfence._connect import Connection, close_quietly

log = logging.getLogger("pyfence")

_LINGER = 10.0  # seconds that the connection stays when nobody waits
_LOOK = 5.0  # seconds between two looks at whether somebody still does
_AGAIN, _AGAIN_INDIRECT = 5.0, 60.0  # seconds until another attempt to listen, after a failure and through a pooler
_DECLINE_TIMEOUT = 5.0


@dataclass(eq=False, slots=True)
class Place:
    """One waiting acquire's place in a queue.

    Attributes:
        wake: called, from any thread, when it is worth asking; returns at once.
        ticket: what the database calls it; 0 before it has answered.
    """

    wake: Callable[[], object]
    ticket: int = 0


class _NotDirect(Exception):
    """A pooler is in between: what this connection listens to would be heard by somebody else."""


class Queue:
    """The places of a client's waiting acquires, and a connection that listens for all of them while there are any.

    Where there is no such connection (not yet, not any more, or never, through a pooler), `listener` is None and the
    waiting acquires ask by themselves.

    Args:
        open_: opens an own connection.
        calls: for giving back the places of those who wait no longer.
    """

    def __init__(self, open_: Callable[[], Connection], calls: Calls) -> None:
        self._open = open_
        self._calls = calls
        self._places: set[Place] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._conn: Connection | None = None
        self._closed = False
        self.listener: int | None = None
        """The pid of the backend that listens, or None."""

    def join(self, wake: Callable[[], object], *, listen: bool) -> Place:
        """A place for one waiting acquire; `listen`: it is worth a connection that hears when it is called."""
        place = Place(wake)
        with self._changed:
            self._places.add(place)
            if listen and self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="pyfence-queue", daemon=True)
                with suppress(RuntimeError):  # no new threads while the interpreter shuts down
                    thread.start()
                    self._thread = thread
        return place

    def leave(self, place: Place) -> None:
        """Gives a place up. The database learns of it when it calls, or never, where the lease was granted."""
        with self._changed:
            self._places.discard(place)

    def close(self) -> None:
        """Stops listening and wakes everybody."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._conn is not None:
                shut_down(self._conn)
        self._wake_all()

    def _wake_all(self) -> None:
        with self._changed:
            places = list(self._places)
        for place in places:
            place.wake()

    def _run(self) -> None:
        while True:
            again = _AGAIN
            try:
                self._listen()
            except _NotDirect:
                again = _AGAIN_INDIRECT
            except Exception as exc:
                log.debug("not listening for leases that become free: %s", exc)
            finally:
                self.listener = None
            self._wake_all()
            with self._changed:
                if not self._closed and self._places:
                    self._changed.wait(again)
                if self._closed or not self._places:
                    self._thread = None
                    return

    def _listen(self) -> None:
        """Returns when nobody waits any more."""
        conn = self._open()
        try:
            ((backend,),) = execute(conn, _statements.BACKEND).fetchall()
            if backend != conn.info.backend_pid:
                raise _NotDirect
            execute(conn, _statements.listen(backend))
            with self._changed:
                if self._closed:
                    return
                self._conn = conn
                self.listener = backend
            last = now()
            while self._places or now() < last + _LINGER:
                if self._places:
                    last = now()
                for call in list(conn.notifies(timeout=_LOOK, stop_after=1)):
                    self._called(call.payload)
        finally:
            with self._changed:
                self._conn = None
            close_quietly(conn)

    def _called(self, payload: str) -> None:
        # Anybody may notify on any channel: a call is a hint, and what is no ticket is nothing.
        if not (payload.isascii() and payload.isdigit() and len(payload) < 19):
            return
        ticket = int(payload)
        with self._changed:
            places = [place for place in self._places if place.ticket == ticket]
        for place in places:
            place.wake()
        if not places:
            self._calls.run(_statements.decline(ticket), timeout=_DECLINE_TIMEOUT)
