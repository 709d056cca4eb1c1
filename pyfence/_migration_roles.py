"""The cluster's group roles fence_client, fence_admin and fence_monitor: made and given their rights, if asked for."""

from __future__ import annotations

from sqlalchemy import Connection

from pyfence.errors import FenceError

GROUPS = {"fence_client": "client", "fence_admin": "admin", "fence_monitor": "monitor"}
"""The group roles, and the kind of use that each stands for."""

_MISSING = """\
select g.name from pg_catalog.unnest(%s::pg_catalog.text[]) with ordinality g (name, position)
where pg_catalog.to_regrole(g.name) is null order by g.position"""
_MAY_CREATE = """\
select r.rolcreaterole or r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user"""
_GRANTS = "select g from fence._role_grants(%s::pg_catalog.regrole, %s) g"


def require_group_roles(connection: Connection) -> None:
    """Raise `FenceError` where the group roles cannot be made. Those that exist need nothing."""
    missing = _missing(connection)
    if missing and not connection.exec_driver_sql(_MAY_CREATE).scalar_one():
        raise FenceError(
            f"this role may not create {', '.join(missing)}",
            detail="Group roles belong to the whole cluster: creating one needs CREATEROLE. Nothing was done.",
            hint=f"Have somebody run: {' '.join(f'create role {name} nologin;' for name in missing)} "
            "Or leave them out: pyfence role add ROLE --as client works without.",
        )


def make_group_roles(connection: Connection) -> None:
    """Create the group roles that are missing and grant all of them their rights, in the connection's transaction."""
    for name in _missing(connection):
        # Another database of this cluster may be making the same role at this moment.
        connection.exec_driver_sql(
            f"do $pyfence$ begin create role {name} nologin;"
            " exception when duplicate_object or unique_violation then null; end $pyfence$"
        )
    for name, kind in GROUPS.items():
        for statement in connection.exec_driver_sql(_GRANTS, (name, kind)).scalars().all():
            connection.exec_driver_sql(str(statement))


def _missing(connection: Connection) -> list[str]:
    return [str(name) for name in connection.exec_driver_sql(_MISSING, (list(GROUPS),)).scalars()]
