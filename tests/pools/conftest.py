"""A protected table whose writers come from pools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guards.scene import Lease, acquire, protect
from harness import Database
from pools.pgbouncer import PROGRAM, PgBouncer


@pytest.fixture
def lease(db: Database) -> Lease:
    """On row 1 of public.report, which has two."""
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    protect(db, "public.report", "report:{id}")
    return acquire(db, "report:1", "1 h")


@pytest.fixture
def bouncer(db: Database) -> Iterator[PgBouncer]:
    """PgBouncer with one connection to the server for everybody."""
    if PROGRAM is None:
        pytest.skip("there is no program pgbouncer (Debian, Ubuntu: apt install pgbouncer)")
    with PgBouncer(db.cluster.server.settings["port"]) as bouncer:
        yield bouncer
