"""A database with protected tables of every shape, owned as the documentation asks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from audit.findings import Stage
from harness import SUPERUSER, Cluster, Connection, Database

TABLES = """
create table public.plain (id int primary key, body text);
create table public.report (id int primary key, tenant text, body text, token bigint);
create table public.tree (id int, region text, body text) partition by list (region);
create table public.tree_a partition of public.tree for values in ('a');
create table public.tree_m partition of public.tree for values in ('m', 'n') partition by list (region);
create table public.tree_m1 partition of public.tree_m for values in ('m');
create table public.parent (id int not null, body text);
create table public.child () inherits (public.parent);
"""
GUARDS = """
select fence.protect('public.plain', 'nightly', p_expiry => 'until_superseded');
select fence.protect('public.report', 'report:{id}', p_token_column => 'token');
select fence.protect('public.tree', 'tree:{id}');
select fence.protect('public.parent', 'parent:{id}');
"""


@pytest.fixture(scope="session")
def owner(cluster: Cluster) -> Iterator[str]:
    """A role that cannot log in and owns tables; app_owner may act as it."""
    cluster.admin.execute("create role table_owner nologin")
    cluster.admin.execute("grant table_owner to app_owner")
    yield "table_owner"
    cluster.admin.execute("revoke table_owner from app_owner")


@pytest.fixture(scope="module")
def tables(cluster: Cluster, owner: str) -> Iterator[Database]:
    """public.plain (table scope), report (row scope), tree (partitioned, two levels), parent (inheritance)."""
    database = Database(cluster)
    database.execute(f"grant usage, create on schema public to {owner}", user=SUPERUSER)
    with database.connect("app_owner") as connection:
        connection.execute(f"set role {owner}")
        connection.execute(TABLES, prepare=False)
        connection.execute("reset role")
        connection.execute(GUARDS, prepare=False)
    yield database
    database.close()


@pytest.fixture(scope="module")
def superuser(tables: Database) -> Connection:
    """One connection: its first audit costs as much as the next four."""
    return tables.connect(SUPERUSER)


@pytest.fixture
def stage(superuser: Connection) -> Iterator[Stage]:
    """A transaction over those tables, rolled back."""
    superuser.execute("select")
    stage = Stage(superuser)
    yield stage
    superuser.rollback()
    stage.close()
