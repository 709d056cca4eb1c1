"""The Alembic environment of schema fence: everything in one transaction, after one lock, from files run verbatim.

`pyfence.migrate` and `pyfence migrate` run this; so does Alembic's own command, given `sqlalchemy.url`.
"""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Connection

from pyfence import _migration_ops as ops
from pyfence._migration_target import connected

OPTIONS: dict[str, Any] = {"version_table": ops.VERSION_TABLE, "version_table_schema": ops.SCHEMA}


def run_offline() -> None:
    """Write the script, with a check of its own that the database is at the revision it starts from."""
    context.configure(dialect_name="postgresql", literal_binds=True, **OPTIONS)
    migration = context.get_context()
    start = migration.get_current_heads()
    with context.begin_transaction():
        ops.run_raw(migration, ops.SCRIPT_SETTINGS, name="settings for this transaction")
        ops.run_raw(migration, ops.prelude(), name="prelude")
        ops.run_raw(migration, ops.start_check(start[0] if start else None), name="only from where this script starts")
        context.run_migrations()


def run_online(connection: Connection) -> None:
    """Migrate on `connection`, inside the transaction it is in. The lock comes before the version is read."""
    context.configure(connection=connection, **OPTIONS)
    search_path = connection.exec_driver_sql("select pg_catalog.current_setting('search_path')").scalar_one()
    ops.run_raw(context.get_context(), ops.prelude(), name="prelude")
    context.run_migrations()
    connection.exec_driver_sql("select pg_catalog.set_config('search_path', %s, true)", (search_path,))


if context.is_offline_mode():
    run_offline()
elif "connection" in context.config.attributes:
    run_online(context.config.attributes["connection"])
else:
    with connected(context.config.get_main_option("sqlalchemy.url") or "") as own:
        run_online(own)
