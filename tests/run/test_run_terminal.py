"""On a terminal: the command can read it, and Ctrl-C, Ctrl-Z and `fg` do what they do without a wrapper."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import sys
import time

import pytest
from cli.command import PROGRAM
from harness import DEADLINE, wait_until
from run.runner import RESOURCE, Runner, children, is_alive, is_stopped, wait_until_gone

BASH = shutil.which("bash")

#: Asks its terminal for a line, tells it, and waits for more.
ASKS = """
import os, sys
print(f"pid={os.getpid()}", flush=True)
for line in open("/dev/tty"):
    print(f"told={line.strip()}", flush=True)
"""


class Terminal:
    """A shell with job control on a terminal of its own."""

    def __init__(self, run: Runner) -> None:
        self.shown = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                os.environ.update(run.variables, PS1="ready$ ", HISTFILE="/dev/null", INPUTRC="/dev/null")
                os.execv(str(BASH), [str(BASH), "--norc", "--noprofile", "--noediting", "-i"])
            finally:
                os._exit(1)
        self.until(r"ready\$ ")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, pattern: str) -> str:
        """Returns what matches the pattern's group when it has been shown, once."""
        end = time.monotonic() + DEADLINE
        while True:
            found = re.search(pattern, self.shown)
            if found:
                self.shown = self.shown[: found.start()] + self.shown[found.end() :]
                return found[found.lastindex or 0]
            if not select.select([self._fd], [], [], max(0.0, end - time.monotonic()))[0]:
                pytest.fail(f"not shown within {DEADLINE} s: {pattern}\n{self.shown}")
            self.shown += os.read(self._fd, 65536).decode(errors="replace")

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self.pid, 0)


@pytest.mark.skipif(BASH is None, reason="no bash: job control was not tried")
def test_a_command_on_a_terminal(run: Runner) -> None:
    terminal = Terminal(run)
    try:
        terminal.type(f"{PROGRAM} run --resource {RESOURCE} --ttl 60 -- {sys.executable} -c '{ASKS}'\n")
        command = int(terminal.until(r"pid=(\d+)\r"))
        (wrapper,) = [pid for pid in children(terminal.pid) if command in children(pid)]
        terminal.type("one\n")
        terminal.until("told=one\r")

        terminal.type("\x1a")
        terminal.until(r"Stopped")
        assert is_stopped(command)
        assert is_stopped(wrapper)
        terminal.type("echo the shell $((40 + 2))\n")
        terminal.until("the shell 42")

        terminal.type("fg\n")
        wait_until(lambda: not is_stopped(command) and not is_stopped(wrapper), "both go on")
        terminal.type("two\n")
        terminal.until("told=two\r")
        assert run.state == "held"

        terminal.type("\x03")
        wait_until_gone(command, wrapper)
        terminal.type("echo code=$?\n")
        assert terminal.until(r"code=(\d+)\r") == str(128 + signal.SIGINT)
        assert run.state == "closed: released"
    finally:
        terminal.close()


@pytest.mark.skipif(BASH is None, reason="no bash: job control was not tried")
def test_in_a_pipeline_the_terminal_stays_with_whoever_reads_it(run: Runner) -> None:
    """A pager at the end reads the keyboard; the command does not take it away. Ctrl-C ends both."""
    terminal = Terminal(run)
    try:
        pager = f"{sys.executable} -c '{ASKS}'"
        terminal.type(f"{PROGRAM} run --resource {RESOURCE} -- sh -c 'echo $$ >&2; exec sleep 60' | {pager}\n")
        command = int(terminal.until(r"\n(\d+)\r"))
        reader = int(terminal.until(r"pid=(\d+)\r"))
        terminal.type("one\n")
        terminal.until("told=one\r")
        assert is_alive(command)
        terminal.type("\x03")
        wait_until_gone(command, reader)
        wait_until(lambda: run.state == "closed: released", "the lease is given back")
    finally:
        terminal.close()
