"""Two protected tables for the races."""

from __future__ import annotations

import pytest
from guards.scene import Lease, acquire, protect
from harness import Database


@pytest.fixture
def report(db: Database) -> str:
    """public.report: two rows, a resource each; public.lenient: the same, where expiry alone refuses nobody."""
    for table, expiry in (("report", "reject"), ("lenient", "until_superseded")):
        db.execute(f"create table public.{table} (id int primary key, body text, token bigint)")
        db.execute(f"insert into public.{table} values (1, 'old', 0), (2, 'old', 0)")
        protect(db, f"public.{table}", "report:{id}", p_expiry=expiry)
    return "public.report"


@pytest.fixture
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1")
