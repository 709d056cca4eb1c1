"""From what a caller may pass (sessions and connections, async ones, registries) to SQLAlchemy's synchronous core."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from pyfence.errors import BadArgument

Target = Session | Connection | scoped_session[Any] | AsyncSession | AsyncConnection | async_scoped_session[Any]
Bind = Engine | AsyncEngine | Connection | AsyncConnection


def core_of(target: object) -> tuple[Session | Connection, AsyncSession | AsyncConnection | None]:
    """The synchronous session or connection to work with, and the async one around it if there is one."""
    if isinstance(target, (scoped_session, async_scoped_session)):
        target = target()
    if isinstance(target, AsyncSession):
        return target.sync_session, target
    if isinstance(target, AsyncConnection):
        if target.sync_connection is None:
            raise BadArgument("this AsyncConnection has not been started", hint="async with engine.connect() as conn")
        return target.sync_connection, target
    if isinstance(target, (Session, Connection)):
        return target, None
    raise BadArgument(
        f"not a session or connection of SQLAlchemy: {type(target).__name__}",
        hint="Pass a Session, AsyncSession, Connection or AsyncConnection. For psycopg: pyfence.present().",
    )


def core_of_bind(bind: Bind | None) -> Engine | Connection | None:
    """A synchronous engine or connection."""
    if isinstance(bind, AsyncEngine):
        return bind.sync_engine
    if isinstance(bind, AsyncConnection):
        return bind.sync_connection
    return bind


def connection_of(core: Session | Connection, bind: Engine | Connection | None) -> Connection:
    """The connection of a session's open transaction (which gets one now if it has none yet), or the one given."""
    if isinstance(core, Connection):
        return core
    try:
        return core.connection(bind_arguments={"bind": bind or core.get_bind()})
    except UnboundExecutionError:
        raise BadArgument(
            "this session works with several databases", hint="Pass bind=, the engine of the lease's database."
        ) from None
