"""The players' processes as the story sees them: requests and answers, and freezing and waking them for real."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

PATIENCE = 45.0  # seconds until a player that does not answer has failed


class PlayerFailed(RuntimeError):
    """A player ended, or did not answer in time. Its own error is on stderr."""


class PlayerProcess:
    """A player in a process of its own."""

    def __init__(self, url: str, name: str, schema: str) -> None:
        """Start it. It connects while we do something else; `ready` waits for that."""
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pyfence.demo._player"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A group of its own: Ctrl-C is for us alone. And of our session: if we are killed, the kernel finds the
            # group orphaned, wakes a frozen player and hangs up on it.
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._unread = b""
        self._frozen = False
        self._say({"url": url, "name": name, "schema": schema})

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it has started and connected."""
        self.answer()

    def send(self, do: str, **request: Any) -> None:
        """Put a request into its pipe. Its answer is the next one that `answer` gives."""
        self._say({"do": do, **request})

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        """The answer to the oldest request that has none yet; waits for it up to `patience` seconds."""
        deadline = time.monotonic() + patience
        while b"\n" not in self._unread:
            if not self._readable(max(0.0, deadline - time.monotonic())):
                raise PlayerFailed(f"{self.name} did not answer within {patience:.0f} s")
            read = os.read(self._answers.fileno(), 65536)
            if not read:
                raise PlayerFailed(f"{self.name} ended with exit code {self._process.wait()}")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, *, patience: float = PATIENCE, **request: Any) -> dict[str, Any]:
        """`send` and `answer`."""
        self.send(do, **request)
        return self.answer(patience)

    def freeze(self) -> None:
        """SIGSTOP; returns when the kernel says that the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._process.returncode = os.waitstatus_to_exitcode(status)
            raise PlayerFailed(f"{self.name} ended instead of stopping")
        self._frozen = True

    def is_silent(self) -> bool:
        """Whether there is no answer waiting to be read."""
        return b"\n" not in self._unread and not self._readable(0)

    def wake(self) -> None:
        """SIGCONT: it goes on with what it finds in its pipe."""
        os.kill(self.pid, signal.SIGCONT)
        self._frozen = False

    def end(self) -> None:
        """Make it end, frozen or not, and wait for that. Ending twice is fine."""
        with suppress(OSError):
            self._requests.close()
        if self._frozen or self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._answers.close()

    def _readable(self, timeout: float) -> bool:
        return bool(select.select([self._answers], [], [], timeout)[0])

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._requests.write(json.dumps(message).encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise PlayerFailed(f"{self.name} ended with exit code {self._process.wait()}") from None
