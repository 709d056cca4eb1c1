"""The options that every command takes, before or after its name, and the types of arguments."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict

from pyfence._connect import plain_url, with_defaults

URL_VARIABLE = "PYFENCE_DATABASE_URL"

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Settings:
    """What the shared options say.

    Attributes:
        database_url: as given on the command line, else None.
        json: whether stdout is to be one JSON document.
        debug: whether failures show a traceback.
        timeout: seconds that one command may wait for the database's answer, or None where the command decides.
    """

    database_url: str | None = None
    json: bool = False
    debug: bool = False
    timeout: float | None = None

    def connect_arguments(self) -> dict[str, Any]:
        """The driver's arguments: from --database-url, else PYFENCE_DATABASE_URL, else libpq's own variables.

        Raises click.UsageError, without any part of the URL, where it cannot be read.
        """
        url = self.database_url if self.database_url is not None else os.environ.get(URL_VARIABLE, "")
        try:
            arguments = dict(conninfo_to_dict(plain_url(url)))
        except psycopg.Error:
            arguments = {"port": "unreadable"}
        # What follows a stray '@' or '/' in a password lands in the host, the port or the database's name, and libpq
        # would quote it in its error.
        misplaced = any("@" in str(arguments.get(part) or "") for part in ("host", "port", "dbname"))
        ports = str(arguments.get("port") or "").split(",")
        if misplaced or not all(port.isdecimal() for port in ports if port):
            raise click.UsageError(
                f"{self.url_origin()} is not a URL that can be read: use postgresql://user@host:port/database, "
                "with special characters in the user name and the password percent-encoded."
            )
        return with_defaults(arguments)

    def url_origin(self) -> str:
        """Where the connection's settings come from, for messages."""
        if self.database_url is not None:
            return "--database-url"
        return URL_VARIABLE if os.environ.get(URL_VARIABLE) else "the PG* variables"


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a shared option's value; the one nearest to the end of the command line wins."""
    settings = ctx.ensure_object(Settings)
    if value is not None:
        setattr(settings, str(param.name), value)


def seconds(value: str) -> float:
    """A length of time: above zero, at most a day."""
    try:
        length = float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number") from None
    if not math.isfinite(length) or not 0 < length <= 86400:
        raise click.BadParameter(f"{value!r} is not above 0 and at most 86400")
    return length


def text(value: str) -> str:
    """Text that PostgreSQL can store: valid Unicode, not empty."""
    if not value:
        raise click.BadParameter("must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not valid Unicode text") from None
    return value


def name(value: str) -> str:
    """A table or role as SQL writes it: folded to lower case unless in double quotes. The server resolves it."""
    if text(value).strip().isdecimal() or value.strip() in ("", "-"):  # the server would read an object's number
        raise click.BadParameter(f"""{value!r} is not a name; quote it as SQL does: '"{value}"'""")
    return value


def shared_options(command: Command) -> Command:
    """Add the options of `Settings` to a command or group. They reach it through `click.pass_obj`."""
    for option, extra in reversed(_SHARED.items()):
        command = click.option(option, callback=_store, expose_value=False, default=None, **extra)(command)
    return command


_SHARED: dict[str, dict[str, Any]] = {
    "--database-url": {
        "metavar": "URL",
        "help": f"postgresql://... or libpq's key=value form. [default: {URL_VARIABLE}, then the PG* variables]",
    },
    "--json": {"is_flag": True, "help": "One JSON document on stdout, errors too."},
    "--timeout": {"type": seconds, "metavar": "SECONDS", "help": "Give up after this long without an answer."},
    "--debug": {"is_flag": True, "help": "Show the traceback of a failure."},
}
