"""`create_all` with guards: for tests, and for applications that do without migrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, MetaData, Table, event

from pyfence.sqlalchemy import _ddl
from pyfence.sqlalchemy._protection import protection_of


def protect_metadata(metadata: MetaData) -> None:
    """From now on `metadata.create_all()` also guards the tables whose models have a marker; `drop_all()` takes it off.

    The schema `fence` must be installed. Calling it again changes nothing.
    """
    for name, listener in (("after_create", _created), ("before_drop", _dropping)):
        if not event.contains(metadata, name, listener):
            event.listen(metadata, name, listener)


def _created(metadata: MetaData, connection: Connection, *, tables: Iterable[Table] | None = None, **_: Any) -> None:
    for table in tables or ():
        if (wanted := protection_of(table)) is not None:
            sql = _ddl.protect(table.name, table.schema, wanted.resource, wanted.options, _ddl.LOCK_TIMEOUT)
            connection.exec_driver_sql(sql.replace("%", "%%"))


def _dropping(metadata: MetaData, connection: Connection, *, tables: Iterable[Table] | None = None, **_: Any) -> None:
    for table in tables or ():
        name = ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name) if part is not None)
        there = "select 1 from fence.protected_tables where protected_table = pg_catalog.to_regclass(%s)"
        if protection_of(table) is not None and connection.exec_driver_sql(there, (name,)).scalar() is not None:
            sql = _ddl.unprotect(table.name, table.schema, _ddl.LOCK_TIMEOUT)
            connection.exec_driver_sql(sql.replace("%", "%%"))
