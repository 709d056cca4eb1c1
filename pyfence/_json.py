"""Python values as jsonb that PostgreSQL turns into the column's type. No I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

from pyfence.errors import BadArgument


def to_json(values: Mapping[str, object], *, name: str) -> str:
    """`values` (column to value) as JSON text, exact: no value goes through a float on its way.

    None is null; int, float and Decimal are numbers with all their digits; datetime, date and time are ISO 8601 (an
    aware datetime keeps its offset); timedelta is text that PostgreSQL reads as an interval; UUID is its text; bytes
    are bytea's ``\\x`` form; an Enum is its value if it is also a str or int, else its name, as in psycopg; lists,
    tuples and dicts become arrays and objects.

    Raises:
        BadArgument: (a ValueError) naming the key: NaN and infinity, NUL in a text, any other type.
    """
    if not isinstance(values, Mapping):
        raise BadArgument(f"{name} must be a mapping of column to value, not {type(values).__name__}")
    return "".join(_encode(values, name))


def _encode(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Enum) and not isinstance(value, (str, int)):
        value = value.name
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, str):
        yield _text(str.__str__(value), path)
    elif isinstance(value, int):
        yield int.__repr__(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _refused(f"{path} is {value!r}, which JSON has no number for")
        yield float.__repr__(value)
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise _refused(f"{path} is {value!r}, which JSON has no number for")
        yield str(value)
    elif isinstance(value, (datetime, date, time)):
        yield json.dumps(value.isoformat())
    elif isinstance(value, timedelta):
        yield json.dumps(f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds")
    elif isinstance(value, UUID):
        yield json.dumps(str(value))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield json.dumps("\\x" + bytes(value).hex())
    elif isinstance(value, Mapping):
        yield from _object(value, path)
    elif isinstance(value, (list, tuple)):
        yield "["
        for position, item in enumerate(value):
            yield "," if position else ""
            yield from _encode(item, f"{path}[{position}]")
        yield "]"
    else:
        raise _refused(f"{path} is of type {type(value).__name__}, which has no JSON form")


def _object(values: Mapping[object, object], path: str) -> Iterator[str]:
    yield "{"
    for position, (key, item) in enumerate(values.items()):
        if not isinstance(key, str):
            raise _refused(f"{path} has a key of type {type(key).__name__}; keys are str")
        yield "," if position else ""
        yield _text(str.__str__(key), path)
        yield ":"
        yield from _encode(item, f"{path}[{key!r}]")
    yield "}"


def _text(value: str, path: str) -> str:
    if "\0" in value:
        raise _refused(f"{path} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(f"{path} is not valid Unicode text") from None
    return json.dumps(value, ensure_ascii=False)


def _refused(message: str) -> BadArgument:
    return BadArgument(message, hint="Pass the value as text, the way PostgreSQL writes it.")
