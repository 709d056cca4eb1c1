"""A command in a process group of its own: signals go on to it, a terminal is lent to it, and nothing of it is left.

Both processes that this needs are forked at once, while there is one thread and no connection yet. The first waits
behind a gate for its environment and then becomes the command. The second, the guardian, does nothing but read from a
pipe: when this process is killed the pipe ends, and the guardian kills the group.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # what a shell says

_TO_GROUP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH, signal.SIGTSTP)
_TO_COMMAND = (signal.SIGUSR1, signal.SIGUSR2)  # these mean something to one program, and death to its helpers
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WANTS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
_WOKEN = 0  # on the bell's pipe, beside the numbers of signals


class Bell:
    """Tells the main thread of signals, in their order, and of whatever other threads `ring` it for.

    From the start of those that end a process and of children; after `listen` also of the others that a command may
    be meant by. A signal that was ignored from the start (nohup) stays so.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._old: dict[int, Any] = {}
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)
        self._handle(*ENDING)

    def _handle(self, *numbers: int) -> None:
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, _nothing)

    def listen(self) -> None:
        """From now on this process does with no signal what it would do by itself."""
        self._handle(*{*_TO_GROUP, *_TO_COMMAND, signal.SIGCONT}.difference(ENDING))

    def ring(self) -> None:
        """Ends a `wait`. From any thread."""
        with suppress(OSError):
            os.write(self._writing, bytes([_WOKEN]))

    def wait(self, seconds: float) -> list[int]:
        """The signals that came, at the latest after `seconds`."""
        select.select([self._reading], [], [], max(0.0, seconds))
        try:
            return [number for number in os.read(self._reading, 4096) if number != _WOKEN]
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Signals do again what they did before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, which would be left to the command: the number is on its way to the bell."""


class Child:
    """The command. Made behind its gate by `prepared`; `start` lets it go.

    Attributes:
        status: what the command itself ended with, as a shell says it (128 plus a signal's number), else None.
        gone: whether the whole process group has ended.
    """

    def __init__(self, pid: int, gate: int, guardian: int, lifeline: int) -> None:
        self.status: int | None = None
        self.gone = False
        self._pid = pid
        self._gate: int | None = gate
        self._guardian = guardian
        self._lifeline = lifeline
        self._terminal = _controlling_terminal()

    def start(self, environment: Mapping[str, str]) -> None:
        """Runs the command with these variables added to this process's own."""
        gate, self._gate = self._gate, None
        assert gate is not None
        with os.fdopen(gate, "wb") as opened:
            opened.write(json.dumps(dict(environment)).encode())

    def look(self) -> None:
        """Notices what has ended, and lends or takes back the terminal where something has stopped."""
        if self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
            elif pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
        if self.status is not None:
            with suppress(ChildProcessError):  # orphans of the group, where this process is the one that inherits them
                while os.waitpid(-self._pid, os.WNOHANG)[0]:
                    pass
            self.gone = not self._signal_group(0)

    def pass_on(self, number: int) -> None:
        """Gives a signal that this process got to those whom it concerns."""
        if number in _TO_COMMAND:
            if self.status is None:
                os.kill(self._pid, number)
        elif number in (*_TO_GROUP, signal.SIGCONT):
            self._signal_group(number)

    def terminate(self) -> None:
        """Asks the whole group to end; what is stopped is woken up to hear it."""
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the whole group."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> bool:
        """Whether there is anybody left in the group."""
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # somebody is, who has changed the user
            return True
        return True

    def _stopped(self, number: int) -> None:
        if number in _WANTS_TERMINAL and self._lend():
            self._signal_group(signal.SIGCONT)
        elif number in (signal.SIGTSTP, *_WANTS_TERMINAL):
            # The shell that started this process looks at this process: stop as well. Whoever continues it sends
            # SIGCONT, which is passed on like any other signal, unless the lease has run out meanwhile.
            borrowed = self._take_back()
            old = signal.signal(number, signal.SIG_IGN)
            if borrowed:
                os.kill(0, number)  # as the terminal would have: to the rest of the job, such as a pipeline
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_kill(threading.get_ident(), number)
            signal.signal(number, old)
            if borrowed:
                self._lend()

    def _lend(self) -> bool:
        """Gives the terminal to the group, if it is this process's to give."""
        return self._hand(os.getpgrp(), self._pid)

    def _take_back(self) -> bool:
        return self._hand(self._pid, os.getpgrp())

    def _hand(self, from_group: int, to_group: int) -> bool:
        if self._terminal is None:
            return False
        try:
            if os.tcgetpgrp(self._terminal) != from_group:
                return False
            os.tcsetpgrp(self._terminal, to_group)
        except OSError:  # hung up
            return False
        return True

    def close(self) -> None:
        """Leaves nothing: a command that was not started never will be, and one that is there is killed."""
        if self._gate is not None:
            os.close(self._gate)
        if not self.gone:
            self.kill()
        self._take_back()
        if self._terminal is not None:
            os.close(self._terminal)
        with suppress(OSError):
            os.write(self._lifeline, b".")
        os.close(self._lifeline)
        os.waitpid(self._guardian, 0)


@contextmanager
def prepared(arguments: Sequence[str]) -> Iterator[Child]:
    """A command behind its gate. To be called while there is one thread and nothing is open that it must not get."""
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(opener)
            _become(arguments, gate)
        finally:
            os._exit(NOT_EXECUTABLE)
    os.close(gate)
    with suppress(OSError):  # done by whoever of the two comes first
        os.setpgid(pid, pid)
    reading, lifeline = os.pipe()
    guardian = os.fork()
    if guardian == 0:
        try:
            _guard(pid, reading)
        finally:
            os._exit(0)
    os.close(reading)
    ignored = signal.signal(
        signal.SIGTTOU, signal.SIG_IGN
    )  # handing the terminal over is no output of a background job
    child = Child(pid, opener, guardian, lifeline)
    try:
        yield child
    finally:
        child.close()
        signal.signal(signal.SIGTTOU, ignored)


def _become(arguments: Sequence[str], gate: int) -> NoReturn:
    with suppress(OSError):
        os.setpgid(0, 0)
    # What Python itself has changed; what this process was given (nohup) stays.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with os.fdopen(gate, "rb") as reading:
        text = reading.read()
    if not text:
        os._exit(0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    try:
        os.execvpe(arguments[0], list(arguments), {**os.environ, **json.loads(text)})
    except OSError as exc:
        reason = f"{exc.strerror}: has it no #! line?" if exc.errno == errno.ENOEXEC else exc.strerror
        os.write(2, f"error: cannot run {arguments[0]}: {reason}\n".encode(errors="backslashreplace"))
        os._exit(NOT_FOUND if isinstance(exc, (FileNotFoundError, NotADirectoryError)) else NOT_EXECUTABLE)


def _guard(group: int, lifeline: int) -> None:
    os.setsid()
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, lifeline)
    os.closerange(lifeline + 1, os.sysconf("SC_OPEN_MAX"))
    if not os.read(lifeline, 1):
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _controlling_terminal() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
