"""`migrate up --with-roles`: the cluster's group roles, made only then, and only by who may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.command import CommandLine
from harness import SUPERUSER, Cluster, Database, sqlstate

from pyfence import migrate
from pyfence.errors import FenceError

from .conftest import catalog

FOUND = (
    "select rolname::text from pg_roles where rolname in ('fence_admin', 'fence_client', 'fence_monitor') order by 1"
)
GROUPS = ["fence_admin", "fence_client", "fence_monitor"]


@pytest.fixture(autouse=True)
def groups(cluster: Cluster) -> Iterator[None]:
    """A cluster without group roles, before and after; the test's databases are gone by then."""
    yield
    cluster.admin.execute("alter role fence_owner nocreaterole")
    for (name,) in cluster.admin.execute(FOUND).fetchall():
        cluster.admin.execute(f"drop role {name}")


def found(db: Database) -> list[str]:
    return [name for (name,) in db.execute(FOUND, user=SUPERUSER)]


def test_an_installation_makes_no_role_unless_asked(empty_db: Database) -> None:
    before = empty_db.execute("select array_agg(r order by oid) from pg_roles r", user=SUPERUSER)
    migrate.up(empty_db.url("fence_owner"))
    assert empty_db.execute("select array_agg(r order by oid) from pg_roles r", user=SUPERUSER) == before


def test_who_may_not_create_roles_is_told_before_anything_is_done(empty_db: Database) -> None:
    url = empty_db.url("fence_owner")
    with pytest.raises(FenceError, match="may not create fence_client, fence_admin, fence_monitor") as refused:
        migrate.up(url, with_roles=True)
    assert refused.value.hint is not None
    assert "create role fence_client nologin;" in refused.value.hint
    assert "role add" in refused.value.hint
    assert catalog(empty_db) == {}
    assert found(empty_db) == []
    assert "create role" in CommandLine(url)("migrate", "up", "--with-roles", code=1).err
    migrate.up(url)  # and can be left out


def test_with_createrole_they_are_made_and_their_members_can_work(empty_db: Database, cluster: Cluster) -> None:
    cluster.admin.execute("alter role fence_owner createrole")
    cli = CommandLine(empty_db.url("fence_owner"))
    assert cli("migrate", "up", "--with-roles").out == f"{migrate.head()}\n"
    assert found(empty_db) == GROUPS
    strong = "select bool_or(rolcanlogin or rolsuper or rolcreaterole) from pg_roles where rolname = any(%s)"
    assert empty_db.execute(strong, (GROUPS,)) == [(False,)]
    cluster.admin.execute("grant fence_client to outsider")
    try:
        assert empty_db.execute("select granted from fence.acquire('x')", user="outsider") == [(True,)]
        with sqlstate("42501"):
            empty_db.execute("select * from fence.leases", user="outsider")
    finally:
        cluster.admin.execute("revoke fence_client from outsider")
    cluster.admin.execute("grant fence_monitor to outsider")
    try:
        assert empty_db.execute("select resource from fence.leases", user="outsider") == [("x",)]
        with sqlstate("42501"):
            empty_db.execute("select fence.revoke('x', 'why')", user="outsider")
    finally:
        cluster.admin.execute("revoke fence_monitor from outsider")
    cli("migrate", "up", "--with-roles")  # again is no error


def test_roles_that_are_there_need_no_createrole(empty_db: Database, cluster: Cluster) -> None:
    """Another database of the cluster made them, or a DBA."""
    for name in GROUPS:
        cluster.admin.execute(f"create role {name} nologin")
    migrate.up(empty_db.url("fence_owner"), with_roles=True)
    may = "select has_function_privilege('fence_client', 'fence.release(text, bigint, text)', 'execute')"
    assert empty_db.execute(may, user="fence_owner") == [(True,)]


def test_a_failed_installation_leaves_no_role(empty_db: Database, cluster: Cluster) -> None:
    cluster.admin.execute("alter role fence_owner createrole")
    empty_db.execute("create schema fence; create table fence._lease (x int)", user="fence_owner")
    with pytest.raises(FenceError):
        migrate.up(empty_db.url("fence_owner"), with_roles=True)
    assert found(empty_db) == []
