"""Rendering of resource templates, the same as ``fence.resource_name`` in the database. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from uuid import UUID

from pyfence.errors import BadArgument
from pyfence.types import checked_text

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_ENCODED = str.maketrans({"%": "%25", ":": "%3A", "{": "%7B", "}": "%7D"})


def resource(template: str, values: Mapping[str, object] | None = None, /, **columns: object) -> str:
    """The name of a resource: `template` with every ``{column}`` replaced by its value.

    >>> resource("report:{id}", id=1)
    'report:1'
    >>> resource("tenant:{tenant_id}:{region}", tenant_id=7, region="eu:west")
    'tenant:7:eu%3Awest'

    Gives exactly what ``fence.resource_name`` gives in the database and what a guard computes for a row. Doubled braces
    stand for a brace; ``%``, ``:``, ``{`` and ``}`` in a value are percent-encoded, so that two different keys never
    make one name.

    Args:
        template: text with placeholders, at least one character.
        values: values by column, for names that are no Python identifier, such as ``{"@schema": "public"}``.
        columns: values by column; they win over `values`.

    Raises:
        BadArgument: (a ValueError) naming the placeholder: unknown, without a value (None), of a type that can be no
            key (only int, str, bool, UUID and Enum can), or unbalanced braces.
    """
    known = {**(values or {}), **columns}

    def render(match: re.Match[str]) -> str:
        token = match.group()
        if token in ("{{", "}}"):
            return token[0]
        column = match.group(1)
        if column is None:
            raise BadArgument(
                f"unbalanced {token!r} in template {template!r}", hint="Double a brace that is part of the name."
            )
        if column not in known:
            raise BadArgument(f"no value for {{{column}}} of template {template!r}", hint=f"Pass {column}=...")
        return _value(column, known[column]).translate(_ENCODED)

    return checked_text(_TOKEN.sub(render, checked_text(template, name="template")), name="resource")


def _value(column: str, value: object) -> str:
    if isinstance(value, Enum) and not isinstance(value, (str, int)):
        value = value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, UUID):
        return str(value)
    raise BadArgument(
        f"{{{column}}} cannot be {'None' if value is None else f'a {type(value).__name__}'}",
        hint="A key is an int, str, bool, UUID or Enum, and never null.",
    )
