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


EXPLAINED = """\
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
