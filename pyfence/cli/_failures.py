"""From an exception to what a person or a program is told: one code, message, detail and hint. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from pyfence._programs import ServerError
from pyfence.cli._exit_codes import ExitCode, RunCode
from pyfence.errors import FenceError, OutcomeUnknown, from_driver

# SQLSTATE classes and codes after which the same command may succeed later: connection, resources, operator, lock wait.
_NO_ANSWER = ("08", "53", "57", "55P03", "40001", "40P01")
_NO_CONNECTION = "08001"  # the driver gives failed connections no code of their own
_LOST_CONNECTION = "08006"

_URL_PASSWORD = re.compile(r"(\w://)[^\s/]*:[^\s]*@")
_KEY_PASSWORD = re.compile(
    r"\b(password|passfile|sslpassword)(\s*=\s*|%3D)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong.

    Attributes:
        code: an SQLSTATE, or a word for what no SQLSTATE exists.
        exit_code: the process's.
    """

    code: str
    message: str
    detail: str | None = None
    hint: str | None = None
    exit_code: ExitCode | RunCode = ExitCode.NO


class Failed(Exception):
    """A failure whose description is known where it happens."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OutputFailed(Exception):
    """Stdout cannot be written: its reader has gone, the disk is full, or there is none."""


def redacted(text: str) -> str:
    """`text` without the passwords that URLs and key=value settings in it may hold."""
    return _KEY_PASSWORD.sub(r"\1\2***", _URL_PASSWORD.sub(r"\1***@", text))


def no_connection(exc: Exception, hint: str) -> Failed:
    """The failure for a connection that could not be opened; `hint` says where the settings came from."""
    code = getattr(exc, "sqlstate", None) or _NO_CONNECTION
    detail = redacted("\n".join(line.strip() for line in str(exc).splitlines() if line.strip()))
    return Failed(Failure(code, "cannot connect to the database", detail, hint, ExitCode.UNREACHABLE))


def failure_of(exc: BaseException) -> Failure | None:
    """How to tell `exc`; None for what no command should raise: a defect."""
    if isinstance(exc, Failed):
        return exc.failure
    if isinstance(exc, OutcomeUnknown):
        return Failure("outcome_unknown", exc.message, exc.detail, exc.hint, ExitCode.UNREACHABLE)
    if isinstance(exc, FenceError):
        cause = exc.__cause__
        code = exc.sqlstate or (_code(cause) if isinstance(cause, psycopg.Error) else None) or "refused"
        return Failure(code, redacted(exc.message), exc.detail, exc.hint, _exit_code(code))
    if isinstance(exc, psycopg.Error):
        return _driver_failure(exc)
    if isinstance(exc, ServerError):
        return Failure("server", str(exc), exit_code=ExitCode.UNREACHABLE)
    return None


def _driver_failure(exc: psycopg.Error) -> Failure | None:
    ours = from_driver(exc)
    if ours is not None:
        return failure_of(ours)
    code = _code(exc)
    if code is None:
        return None
    diag = exc.diag
    message = diag.message_primary or redacted(" ".join(str(exc).split()))
    notes = " ".join(getattr(exc, "__notes__", ())) or None
    return Failure(code, message, diag.message_detail or notes, diag.message_hint, _exit_code(code))


def _code(exc: psycopg.Error) -> str | None:
    if exc.sqlstate is None and isinstance(exc, psycopg.OperationalError):
        return _LOST_CONNECTION
    return exc.sqlstate


def _exit_code(code: str) -> ExitCode:
    return ExitCode.UNREACHABLE if code.startswith(_NO_ANSWER) else ExitCode.NO
