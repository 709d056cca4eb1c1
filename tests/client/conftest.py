"""What the tests of the Python client share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Database

import pyfence


@pytest.fixture
def report(db: Database) -> str:
    """A protected table with rows 1 to 4, each a resource `report:{id}`."""
    db.execute("create table public.report (id int primary key, body text, amount numeric)")
    db.execute("insert into public.report select n, 'old', 0 from generate_series(1, 4) n")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    return "public.report"


@pytest.fixture
def fence(db: Database) -> Iterator[pyfence.Fence]:
    """A client over the application's URL."""
    with pyfence.Fence(db.url("app")) as fence:
        yield fence
