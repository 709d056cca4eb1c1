"""A TCP proxy on the loopback that holds bytes back until it is told to let them go.

With it a statement is late although no process was paused, and a commit's answer is lost although the commit was not.
"""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import Self

from psycopg.conninfo import make_conninfo

DEADLINE = 20.0  # seconds until a wait is a failure
REQUESTS, REPLIES = "requests", "replies"


class Gate:
    """One direction: open it passes everything on, closed it keeps what arrives."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._open = True
        self._waiting = 0
        self._ended = False

    def hold(self) -> None:
        """Keep every byte from now on."""
        with self._state:
            self._open = False

    def release(self) -> None:
        """Let go of what was kept, and pass everything on again."""
        with self._state:
            self._open = True
            self._state.notify_all()

    def wait_for_bytes(self, deadline: float = DEADLINE) -> None:
        """Return when something is being kept; AssertionError after `deadline` seconds."""
        with self._state:
            assert self._state.wait_for(lambda: self._waiting > 0, deadline), "nothing arrived at the proxy"

    def pass_through(self) -> bool:
        """Called with bytes in hand: returns when they may go on, False if they never may."""
        with self._state:
            self._waiting += 1
            self._state.notify_all()
            self._state.wait_for(lambda: self._open or self._ended)
            self._waiting -= 1
            return not self._ended

    def end(self) -> None:
        """Give up: what is kept is lost."""
        with self._state:
            self._ended = True
            self._state.notify_all()


class Proxy:
    """Forwards 127.0.0.1:`port` to the server. `requests` is the way to the server, `replies` the way back."""

    def __init__(self, server_port: int, host: str = "127.0.0.1") -> None:
        self._server = (host, server_port)
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = Gate()
        self.replies = Gate()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._last = REPLIES
        self._round_trips = 0
        self.delay = 0.0  # seconds by which everything is late, each way
        self._start(self._accept)

    def url(self, url: str) -> str:
        """The same connection, through the proxy."""
        return make_conninfo(url, host="127.0.0.1", port=self.port)

    def lead_to(self, server_port: int) -> None:
        """New connections go there from now on."""
        self._server = (self._server[0], server_port)

    @property
    def round_trips(self) -> int:
        """How often the talk turned from the server to the client so far: requests that had to be waited for."""
        with self._lock:
            return self._round_trips

    def cut(self) -> None:
        """Break every open connection, as a network does: what is being kept is lost."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for end in sockets:
            _shut(end)

    def close(self) -> None:
        """Stop listening, break the connections and end the threads."""
        _shut(self._listener)
        self._listener.close()
        self.requests.end()
        self.replies.end()
        self.cut()
        for thread in self._threads:
            thread.join(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, call: object, *args: object) -> None:
        thread = threading.Thread(target=call, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:  # nobody is there: as good as refused
                _shut(client)
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, server]
            self._start(self._pump, client, server, REQUESTS)
            self._start(self._pump, server, client, REPLIES)

    def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        gate = self.requests if direction == REQUESTS else self.replies
        try:
            while data := source.recv(65536):
                if not gate.pass_through():
                    break
                self._count(direction)
                if self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(target)

    def _count(self, direction: str) -> None:
        with self._lock:
            if direction == REPLIES and self._last == REQUESTS:
                self._round_trips += 1
            self._last = direction


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
