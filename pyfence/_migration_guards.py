"""Taking every guard off the tables, before the schema goes."""

from __future__ import annotations

from sqlalchemy import Connection

_TABLES = """\
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
from fence.protected_tables g
join pg_catalog.pg_class c on c.oid = g.protected_table
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
order by 1"""
_UNPROTECT = "select fence.unprotect(%s::pg_catalog.text::pg_catalog.regclass)"


def unprotect_all(connection: Connection) -> list[str]:
    """Take every guard off, in the connection's transaction. Returns the tables, quoted as SQL needs it."""
    names = [str(name) for name in connection.exec_driver_sql(_TABLES).scalars()]
    for name in names:
        connection.exec_driver_sql(_UNPROTECT, (name,))
    return names
