"""A table of the application has its guard, or the test fails."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from pyfence._migration_target import Target, connected

_GUARD = """\
select p.armed, p.mode, p.resource from fence.protected_tables p
where p.protected_table = pg_catalog.to_regclass(%s)"""


def assert_protected(
    target: Target | Session, table: str | type[Any] | Table, *, resource: str | None = None, mode: str = "enforce"
) -> None:
    """Fails unless `table` has a guard, every trigger of it is armed, and it is in `mode`.

    Args:
        target: a URL, an engine, a connection or a session, of a role that may read pyfence's views (a monitor).
        table: a name as SQL reads it, a SQLAlchemy `Table` or a mapped class.
        resource: what the guard's template has to be, if that is to be checked too.

    Raises:
        AssertionError: it is not protected, and how.
    """
    if isinstance(target, Session):
        target = target.connection()
    name = _name(table)
    with connected(target) as connection:
        exists = "select pg_catalog.to_regclass(%s) is not null, pg_catalog.to_regnamespace('fence') is not null"
        (there, installed) = connection.exec_driver_sql(exists, (name,)).one()
        assert there, f"there is no table {name}"
        assert installed, f"{name} is not protected: schema fence is not installed in this database"
        try:
            row = connection.exec_driver_sql(_GUARD, (name,)).one_or_none()
        except DBAPIError as exc:
            exc.add_note("pyfence: assert_protected needs the rights of a monitor: pyfence role add ROLE --as monitor")
            raise
    assert row is not None, (
        f"{name} is not protected: it has no guard. Tables made by create_all() have none, unless "
        "pyfence.sqlalchemy.protect_metadata(metadata) was called and the model has a marker"
    )
    armed, found_mode, found_resource = row
    assert armed, f"the guard of {name} is not armed: a trigger is missing, disabled or not ENABLE ALWAYS"
    assert found_mode == mode, f"the guard of {name} is in mode {found_mode}, not {mode}"
    assert resource in (None, found_resource), f"{name} is protected for {found_resource}, not for {resource}"


def _name(table: str | type[Any] | Table) -> str:
    if isinstance(table, str):
        return table
    found: Any = table if isinstance(table, Table) else table.__table__
    return ".".join('"' + part.replace('"', '""') + '"' for part in (found.schema, found.name) if part is not None)
