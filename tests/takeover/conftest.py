"""A protected table, and the right that `evict` needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guards.scene import protect
from harness import SUPERUSER, Database


@pytest.fixture
def report(db: Database) -> str:
    """public.report: two rows, a resource each."""
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


@pytest.fixture
def may_signal(db: Database) -> Iterator[None]:
    """The schema's owner may end other roles' backends, until the test ends: roles belong to the whole cluster."""
    db.execute("grant pg_signal_backend to fence_owner", user=SUPERUSER)
    yield
    db.execute("revoke pg_signal_backend from fence_owner", user=SUPERUSER)
