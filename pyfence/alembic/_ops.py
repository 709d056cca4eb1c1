"""The operations, online and offline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from alembic.operations import MigrateOperation, Operations

from pyfence._migration_ops import run_raw
from pyfence.errors import BadArgument, FenceError, SchemaMismatch, translated
from pyfence.sqlalchemy import _ddl
from pyfence.sqlalchemy._protection import Options

ROLE_HINT = "Give the role that migrates what it needs: pyfence role add ROLE --as admin"


class _TableOp(MigrateOperation):
    """An operation on the guard of one table."""

    def __init__(self, table_name: str, schema: str | None, lock_timeout: str) -> None:
        self.table_name = table_name
        self.schema = schema
        self.lock_timeout = _ddl.checked_timeout(lock_timeout)


@Operations.register_operation("protect")
class ProtectOp(_TableOp):
    """Guard a table."""

    def __init__(
        self,
        table_name: str,
        resource: str,
        options: Options,
        *,
        schema: str | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
    ) -> None:
        super().__init__(table_name, schema, lock_timeout)
        self.resource = resource
        self.options = options

    @classmethod
    def protect(
        cls,
        operations: Operations,
        table_name: str,
        resource: str,
        *,
        schema: str | None = None,
        mode: str | None = None,
        expiry: str | None = None,
        writes: str | None = None,
        inserts: str | None = None,
        covering: str | None = None,
        token_column: str | None = None,
        uncatchable: bool | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
    ) -> None:
        """Guards a table: from the migration's commit on every write to it must present the current token.

        Args:
            table_name, schema: taken letter by letter. Without a schema the search_path decides.
            resource: a name, or a template over the table's columns such as ``'report:{id}'``.
            mode, expiry, writes, inserts, covering, token_column, uncatchable: as for `fence.protect`. None keeps what
                is there, or takes the default.
            lock_timeout: how long it may wait for the table's writers, and so hold up later ones; '2s', '500ms'. After
                that the migration fails with 55P03 and nothing is changed.

        Raises:
            BadArgument: (a ValueError) a template that does not fit the table, an unknown option.
            psycopg.errors.LockNotAvailable: the table stayed busy.
            SchemaMismatch: schema `fence` is not installed.
        """
        options = Options(
            mode=mode,
            expiry=expiry,
            writes=writes,
            inserts=inserts,
            covering=covering,
            token_column=token_column,
            uncatchable=uncatchable,
        )
        operations.invoke(cls(table_name, resource, options, schema=schema, lock_timeout=lock_timeout))

    def reverse(self) -> UnprotectOp:
        return UnprotectOp(self.table_name, schema=self.schema, lock_timeout=self.lock_timeout, former=self)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("add_protection", self.schema, self.table_name, self.resource, self.options.given())


@Operations.register_operation("unprotect")
class UnprotectOp(_TableOp):
    """Take the guard off a table."""

    def __init__(
        self,
        table_name: str,
        *,
        schema: str | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
        former: ProtectOp | None = None,
    ) -> None:
        super().__init__(table_name, schema, lock_timeout)
        self.former = former

    @classmethod
    def unprotect(
        cls,
        operations: Operations,
        table_name: str,
        *,
        schema: str | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
    ) -> None:
        """Takes the guard off a table. The arguments are those of `op.protect`."""
        operations.invoke(cls(table_name, schema=schema, lock_timeout=lock_timeout))

    def reverse(self) -> ProtectOp:
        if self.former is None:
            raise BadArgument("op.unprotect cannot be reversed: it does not say what the guard was")
        return self.former

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("remove_protection", self.schema, self.table_name)


@Operations.register_operation("set_protection")
class SetProtectionOp(_TableOp):
    """Change a guard, or arm it again."""

    def __init__(
        self,
        table_name: str,
        resource: str | None,
        options: Options,
        *,
        schema: str | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
        former: tuple[str | None, Options] | None = None,
        reason: str = "changed",
    ) -> None:
        super().__init__(table_name, schema, lock_timeout)
        self.resource = resource
        self.options = options
        self.former = former
        self.reason = reason

    @classmethod
    def set_protection(
        cls,
        operations: Operations,
        table_name: str,
        *,
        schema: str | None = None,
        resource: str | None = None,
        mode: str | None = None,
        expiry: str | None = None,
        writes: str | None = None,
        inserts: str | None = None,
        covering: str | None = None,
        token_column: str | None = None,
        uncatchable: bool | None = None,
        lock_timeout: str = _ddl.LOCK_TIMEOUT,
    ) -> None:
        """Changes the guard of a protected table without a moment's gap, and arms all its triggers again.

        What is None stays as it is; '' takes a covering resource or a token column away. The other arguments and the
        errors are those of `op.protect`; BadArgument where the table is not protected.
        """
        options = Options(
            mode=mode,
            expiry=expiry,
            writes=writes,
            inserts=inserts,
            covering=covering,
            token_column=token_column,
            uncatchable=uncatchable,
        )
        operations.invoke(cls(table_name, resource, options, schema=schema, lock_timeout=lock_timeout))

    def reverse(self) -> SetProtectionOp:
        if self.former is None:
            raise BadArgument("op.set_protection cannot be reversed: it does not say what was set before")
        resource, options = self.former
        return SetProtectionOp(
            self.table_name,
            resource,
            options,
            schema=self.schema,
            lock_timeout=self.lock_timeout,
            former=(self.resource, self.options),
        )

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("modify_protection", self.schema, self.table_name, self.reason, self.resource, self.options.given())


@Operations.implementation_for(ProtectOp)
def _protect(operations: Operations, operation: ProtectOp) -> None:
    sql = _ddl.protect(
        operation.table_name, operation.schema, operation.resource, operation.options, operation.lock_timeout
    )
    _run(operations, "protect", operation, sql)


@Operations.implementation_for(UnprotectOp)
def _unprotect(operations: Operations, operation: UnprotectOp) -> None:
    _run(
        operations,
        "unprotect",
        operation,
        _ddl.unprotect(operation.table_name, operation.schema, operation.lock_timeout),
    )


@Operations.implementation_for(SetProtectionOp)
def _set_protection(operations: Operations, operation: SetProtectionOp) -> None:
    sql = _ddl.protect(
        operation.table_name, operation.schema, operation.resource, operation.options, operation.lock_timeout
    )
    _run(operations, "set protection", operation, sql)


def _run(operations: Operations, what: str, operation: _TableOp, sql: str) -> None:
    with translated(), _installed():
        run_raw(operations.get_context(), sql, name=f"{what}: {operation.table_name!r}")


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as exc:
        raise SchemaMismatch(
            "this database has no pyfence schema, or an older one", hint="Run first: pyfence migrate up"
        ) from exc
    except psycopg.errors.InsufficientPrivilege as exc:
        if exc.diag.message_hint:  # it is not the table's owner; the database says what to do
            raise
        raise FenceError("this role may not protect tables", detail=exc.diag.message_primary, hint=ROLE_HINT) from exc
