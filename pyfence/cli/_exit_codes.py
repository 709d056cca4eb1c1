"""What the command's exit codes mean. Never 0 on failure."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `pyfence`."""

    OK = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3
    OUTPUT = 4
    DEFECT = 70
    INTERRUPTED = 130


class RunCode(IntEnum):
    """The exit codes of `pyfence run` itself: 120 plus the ordinary code, where there is one, and more.

    All others are its command's.
    """

    REFUSED = 119
    DONE_BEFORE = 120
    BUSY = 121
    USAGE = 122
    UNREACHABLE = 123
    WAITED = 124
    LOST = 125
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


RUN_EXPLAINED = """\
pyfence run passes its command's exit code on and has codes of its own, see there.

\b
Exit codes: the command's own, 128+N where signal N ended it, and
  119  refused: a bad name, a missing right, no schema, a pooler in between
  120  done before (--once): the command was not started
  121  busy: somebody else has the lease
  122  the command line is wrong
  123  no answer from the database: the command was not started, or its success not recorded (--once)
  124  somebody else had the lease as long as --wait allowed
  125  the lease was lost and the command ended, or found out too late
  126  the command cannot be executed
  127  the command was not found
"""

EXPLAINED = """\
pyfence run passes its command's exit code on and has codes of its own, see there.

\b
Exit codes:
  0    done; the answer is yes
  1    the answer is no: refused, behind, not found; nothing was changed
  2    the command line is wrong; nothing was sent
  3    no answer from the database: unreachable, busy, out of time
  4    the output could not be written; the command itself was carried out
  70   a defect in pyfence
  130  interrupted
"""
