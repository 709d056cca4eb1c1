"""Refusals by the database as exceptions that are pyfence's and SQLAlchemy's at once.

`except pyfence.StaleToken` and `except sqlalchemy.exc.DBAPIError` both catch them. The driver's exception is their
`orig` and their cause.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError
from sqlalchemy.ext.asyncio import AsyncEngine

from pyfence import _telemetry
from pyfence.errors import FenceError, from_driver


class Refusal(DatabaseError):
    """SQLAlchemy's half of a refusal. The other half is a class of `pyfence.errors`, see `refusal`."""

    def __init__(self, error: FenceError, driver: BaseException, statement: str | None, parameters: Any) -> None:
        # The parameters are there for who asks for them, as SQLAlchemy's own are, and never in the text.
        super().__init__(statement, parameters, driver, hide_parameters=True)
        vars(self).update(vars(error))
        self._ours = error
        self.__cause__ = driver

    def __str__(self) -> str:
        lines = [str(self._ours)]
        if self.statement:
            lines.append(f"[SQL: {self.statement}]")
        return "\n".join(lines)

    def add_detail(self, msg: str) -> None:
        """SQLAlchemy's remarks (such as: during autoflush) become notes: `detail` is the database's."""
        self.add_note(msg)

    def __reduce__(self) -> Any:
        return refusal, (self._ours, self.orig, self.statement, None)


_CLASSES: dict[type[FenceError], type[Refusal]] = {}


def refusal(error: FenceError, driver: BaseException, statement: str | None = None, parameters: Any = None) -> Refusal:
    """The exception of both kinds for one of pyfence's that came from the driver."""
    kind = type(error)
    _telemetry.refused(error.sqlstate, error.message)
    if kind not in _CLASSES:
        _CLASSES[kind] = type(kind.__name__, (Refusal, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    return _CLASSES[kind](error, driver, statement, parameters)


def translate_errors(engine: Engine | AsyncEngine) -> None:
    """From now on refusals on `engine` are raised as pyfence's classes, which are `DBAPIError`s as before.

    `fenced` and `fenced_execute` do so by themselves. Call it where the engine is made, for code that is refused
    without having asked for a lease. Other errors are left alone. Calling it again changes nothing.
    """
    translate(engine.sync_engine if isinstance(engine, AsyncEngine) else engine)


def translate(engine: Engine) -> None:
    """`translate_errors` for a synchronous engine. Engines made by `execution_options` share it."""
    if not event.contains(engine.dialect, "handle_error", _handle):
        event.listen(engine.dialect, "handle_error", _handle)


def _handle(context: ExceptionContext) -> Refusal | None:
    wrapped = context.sqlalchemy_exception
    driver = context.original_exception
    error = from_driver(driver)
    if error is None or wrapped is None:
        return None
    return refusal(error, driver, wrapped.statement, wrapped.params)
