"""Autogenerate: the models' markers against the guards that the catalog shows; and hands off schema fence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import alembic.util
import psycopg
from alembic.autogenerate import comparators
from alembic.autogenerate.api import AutogenContext
from alembic.operations import ops
from sqlalchemy import Connection, Table
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.sql.elements import quoted_name

from pyfence._migration_ops import SCHEMA
from pyfence.alembic._ops import ROLE_HINT, ProtectOp, SetProtectionOp, UnprotectOp
from pyfence.errors import FenceError
from pyfence.sqlalchemy._protection import DEFAULTS, Options, Protection, is_marked, protection_of

# The tables by their present names: the registry's are those of the time when they were protected.
_GUARDS = """\
select n.nspname, c.relname, p.resource, p.armed,
  p.mode, p.expiry, p.writes, p.inserts, p.covering, p.token_column, p.uncatchable
from fence.protected_tables p
join pg_catalog.pg_class c on c.oid = p.protected_table
join pg_catalog.pg_namespace n on n.oid = c.relnamespace"""

_Key = tuple[str, str]  # schema and name


@dataclass(frozen=True, slots=True)
class _Guard:
    protection: Protection
    armed: bool


def register() -> None:
    """Compare after Alembic has compared the tables: by priority from 1.18 on, by the order of registration before."""
    priority = getattr(alembic.util, "DispatchPriority", None)
    last: dict[str, Any] = {} if priority is None else {"priority": priority.LAST}
    comparators.dispatch_for("schema", **last)(_compare)
    if priority is not None:
        comparators.dispatch_for("schema", priority=priority.FIRST)(_skip)


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """For Alembic's `include_name`: everything but schema fence, so that it is not even read.

    Combine it with the application's own: ``lambda *args: pyfence.alembic.include_name(*args) and mine(*args)``.
    """
    return not (type_ == "schema" and name == SCHEMA) and parent_names.get("schema_name") != SCHEMA


def _skip(context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]) -> Any:
    """Keep Alembic from reading schema fence at all: there are types in it that SQLAlchemy would warn of."""
    if not any(table.schema == SCHEMA for table in context.sorted_tables):
        schemas.discard(SCHEMA)
    return _continue()


def _compare(context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]) -> Any:
    if context.dialect is None or context.dialect.name != "postgresql" or context.connection is None:
        return _continue()
    default = context.dialect.default_schema_name or "public"
    _leave_fence_alone(context, upgrade_ops, default)
    try:
        guards = _guards(context.connection)
    except ProgrammingError as exc:
        if isinstance(exc.orig, psycopg.errors.InsufficientPrivilege):
            raise FenceError("this role may not see which tables are protected", hint=ROLE_HINT) from exc
        raise
    for position, op in reversed(list(enumerate(upgrade_ops.ops))):
        if isinstance(op, ops.DropTableOp) and (guard := guards.pop((op.schema or default, op.table_name), None)):
            upgrade_ops.ops.insert(position, _unprotect(op.table_name, op.schema, guard))
    for table in context.sorted_tables:
        if table.schema not in schemas and table.schema != default:
            continue
        if context.run_object_filters(table, quoted_name(table.name, None), "table", False, None):
            upgrade_ops.ops.extend(_differences(table, guards.get((table.schema or default, table.name))))
    return _continue()


def _continue() -> Any:
    """What a comparison returns where Alembic asks for something."""
    result = getattr(alembic.util, "PriorityDispatchResult", None)
    return None if result is None else result.CONTINUE


def _leave_fence_alone(context: AutogenContext, upgrade_ops: ops.UpgradeOps, default: str) -> None:
    """Drop what is proposed for schema fence, unless the application's own metadata has the table."""
    known = {(table.schema or default, table.name) for table in context.sorted_tables}
    upgrade_ops.ops[:] = [
        op
        for op in upgrade_ops.ops
        if not (
            isinstance(op, (ops.DropTableOp, ops.ModifyTableOps))
            and (op.schema or default) == SCHEMA
            and (SCHEMA, op.table_name) not in known
        )
    ]


def _guards(connection: Connection) -> dict[_Key, _Guard]:
    """Every guard in the database; none where pyfence is not installed."""
    installed = "select pg_catalog.to_regclass('fence.protected_tables') is not null"
    if not connection.exec_driver_sql(installed).scalar_one():
        return {}
    found = {}
    for schema, table, resource, armed, *options in connection.exec_driver_sql(_GUARDS):
        names = ("mode", "expiry", "writes", "inserts", "covering", "token_column", "uncatchable")
        found[schema, table] = _Guard(Protection(resource, Options(**dict(zip(names, options, strict=True)))), armed)
    return found


def _differences(table: Table, guard: _Guard | None) -> list[ops.MigrateOperation]:
    """What has to be done so that the guard is the one the model asks for."""
    wanted = protection_of(table)
    if wanted is None:
        # As with an index that the model does not have. The marker {"fence": None} says: managed elsewhere.
        return [] if guard is None or is_marked(table) else [_unprotect(table.name, table.schema, guard)]
    if guard is None:
        return [ProtectOp(table.name, wanted.resource, wanted.options, schema=table.schema)]
    options = wanted.options.given()
    present = guard.protection.options.given()
    changed: dict[str, Any] = {name: value for name, value in options.items() if value != present.get(name, "")}
    resource = None if wanted.resource == guard.protection.resource else wanted.resource
    if not changed and resource is None and guard.armed:
        return []
    before: dict[str, Any] = {name: present.get(name, "") for name in changed}
    return [
        SetProtectionOp(
            table.name,
            resource,
            Options(**changed),
            schema=table.schema,
            former=(None if resource is None else guard.protection.resource, Options(**before)),
            reason="changed" if guard.armed else "not armed: a trigger is missing, disabled or not ENABLE ALWAYS",
        )
    ]


def _unprotect(name: str, schema: str | None, guard: _Guard) -> UnprotectOp:
    options: dict[str, Any] = {
        option: value for option, value in guard.protection.options.given().items() if value != DEFAULTS.get(option)
    }
    former = ProtectOp(name, guard.protection.resource, Options(**options), schema=schema)
    return UnprotectOp(name, schema=schema, former=former)
