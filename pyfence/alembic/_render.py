"""How the operations stand in a revision."""

from __future__ import annotations

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext

from pyfence.alembic._ops import ProtectOp, SetProtectionOp, UnprotectOp
from pyfence.sqlalchemy._ddl import LOCK_TIMEOUT


def register() -> None:
    """Tell Alembic."""
    renderers.dispatch_for(ProtectOp)(_protect)
    renderers.dispatch_for(UnprotectOp)(_unprotect)
    renderers.dispatch_for(SetProtectionOp)(_set_protection)


def _protect(context: AutogenContext, op: ProtectOp) -> str:
    return _call(context, "protect", op, [repr(op.resource)], op.options.given())


def _unprotect(context: AutogenContext, op: UnprotectOp) -> str:
    return _call(context, "unprotect", op, [], {})


def _set_protection(context: AutogenContext, op: SetProtectionOp) -> str:
    resource = {} if op.resource is None else {"resource": op.resource}
    return _call(context, "set_protection", op, [], {**resource, **op.options.given()})


def _call(
    context: AutogenContext,
    function: str,
    op: ProtectOp | UnprotectOp | SetProtectionOp,
    arguments: list[str],
    options: dict[str, str | bool],
) -> str:
    context.imports.add("import pyfence.alembic  # noqa: F401")  # registers the operations
    named = {"schema": op.schema, **options}
    if op.lock_timeout != LOCK_TIMEOUT:
        named["lock_timeout"] = op.lock_timeout
    words = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    prefix = context.opts["alembic_module_prefix"] or ""
    return f"{prefix}{function}({', '.join([repr(str(op.table_name)), *arguments, *words])})"
