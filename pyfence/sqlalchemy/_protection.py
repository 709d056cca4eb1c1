"""What a model's marker says about the protection of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Table

from pyfence.errors import BadArgument

MARKER = "fence"
"""The key in `Table.info`."""

DEFAULTS = {"mode": "enforce", "expiry": "reject", "writes": "many", "inserts": "check", "uncatchable": False}
"""What a new guard has where nothing is said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The parameters of `fence.protect` after the resource. None: not said; what is there stays, else the default.

    Args:
        mode: 'enforce' or 'observe'.
        expiry: 'reject' or 'until_superseded'.
        writes: 'many', 'once' or 'sequenced'.
        inserts: 'check' or 'allow'.
        covering: a resource whose holder may write every row; '': none any more.
        token_column: a bigint column that the guard stamps with the accepted token; '': none any more.
        uncatchable: refuse with an error that no PL/pgSQL handler catches by accident.
    """

    mode: str | None = None
    expiry: str | None = None
    writes: str | None = None
    inserts: str | None = None
    covering: str | None = None
    token_column: str | None = None
    uncatchable: bool | None = None

    def given(self) -> dict[str, str | bool]:
        """Those that say something."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Protection:
    """A table's resource and options."""

    resource: str
    options: Options


def protection(resource: str, **options: Any) -> dict[str, Any]:
    """The marker of a model: ``__table_args__ = {"info": protection("report:{id}", mode="enforce")}``.

    Args:
        resource: a name, or a template over the table's columns.
        options: see `Options`. What is not given is left as it is in the database, and not compared with it.
    """
    return {MARKER: {"resource": resource, **Options(**options).given()}}


def is_marked(table: Table) -> bool:
    """Whether the model says anything; ``{"fence": None}`` says that its protection is managed elsewhere."""
    return MARKER in table.info


def protection_of(table: Table) -> Protection | None:
    """What a table's marker asks for: ``{"fence": "report:{id}"}``, or a mapping as `protection` makes.

    Raises:
        BadArgument: (a ValueError) neither of these, or an unknown option.
    """
    marker = table.info.get(MARKER)
    if marker is None:
        return None
    if isinstance(marker, str):
        return Protection(marker, Options())
    try:
        options = dict(marker) if isinstance(marker, Mapping) else {}
        return Protection(str(options.pop("resource")), Options(**options))
    except (KeyError, TypeError) as exc:
        raise BadArgument(
            f"table {table.fullname} has a marker that cannot be read: {exc}",
            hint='Use info={"fence": "report:{id}"}, or info=pyfence.sqlalchemy.protection("report:{id}", mode=...).',
        ) from None
