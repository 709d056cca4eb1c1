"""The schema and the functions for tests, in a database made for tests."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import psycopg
from sqlalchemy import Connection

from pyfence import migrate
from pyfence._migration_target import Target, connected
from pyfence.errors import SchemaMismatch, translated
from pyfence.types import Claim

_SCRIPT = "_optional_sql/testing.sql"
_ROLE_GRANTS = "select fence._role_grants(%s::pg_catalog.text::pg_catalog.regrole, %s)"


def install(target: Target, *, clients: Iterable[str] = (), admins: Iterable[str] = ()) -> None:
    """Installs schema `fence`, or brings it up to date, and the functions for tests. Idempotent.

    Args:
        target: a URL, an engine or an open connection, of a role that may own the schema: a superuser will do.
        clients: roles that hold leases in the tests; the installing role may do everything.
        admins: roles that protect tables.

    Raises:
        BadArgument: leases have been granted in this database before: it is not made for tests.
        FenceError: as `pyfence.migrate.up`.
    """
    migrate.up(target)
    script = (files("pyfence") / _SCRIPT).read_text("utf-8")
    with translated(), connected(target) as connection:
        # What the script needs of the owner's rights ends here, also where the transaction is the caller's and goes on.
        role = connection.exec_driver_sql("select pg_catalog.current_setting('role')").scalar_one()
        _run(connection, script)
        for kind, names in (("client", clients), ("admin", admins)):
            for name in names:
                for statement in connection.exec_driver_sql(_ROLE_GRANTS, (name, kind)).scalars().all():
                    _run(connection, statement)
                role_name = '"' + name.replace('"', '""') + '"'
                _run(connection, f"grant usage on schema fence_testing to {role_name}")
                _run(connection, f"grant execute on function fence_testing.expire(text) to {role_name}")
        connection.exec_driver_sql("select pg_catalog.set_config('role', %s, true)", (role,))


def expire(target: Target, lease: Claim | str | Any) -> None:
    """Lets a lease expire: in the database its ttl is over, as if the time had gone by. No waiting.

    What the holder notices is what it would notice then: the next renewal and the next write are refused with LF002.

    Args:
        target: a connection of a role that `install` has let, outside or inside a transaction.
        lease: a `Lease`, `AsyncLease` or `Claim`, or the resource's name.

    Raises:
        SchemaMismatch: this database was not made ready by `install`.
        LookupError: nobody holds that lease.
    """
    resource = lease if isinstance(lease, str) else str(lease.resource)
    with connected(target) as connection:
        installed = "select pg_catalog.to_regnamespace('fence_testing') is not null"
        if not connection.exec_driver_sql(installed).scalar_one():
            raise SchemaMismatch(
                "this database has no functions for tests", hint="Call pyfence.testing.install() in test databases."
            )
        if not connection.exec_driver_sql("select fence_testing.expire(%s)", (resource,)).scalar_one():
            raise LookupError(f"nobody holds a lease on {resource!r}")


def _run(connection: Connection, script: str) -> None:
    """Several statements as they stand."""
    cursor: Any = connection.connection.cursor()
    if isinstance(cursor, psycopg.Cursor):
        cursor.execute(script.encode(), prepare=False)
    else:
        cursor.execute(script)
    cursor.close()
