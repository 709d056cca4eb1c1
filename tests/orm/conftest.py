"""What the tests of the SQLAlchemy integration share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from harness import Database
from orm.model import Base, engine_over

import pyfence


@pytest.fixture
def engine(db: Database) -> Iterator[sa.Engine]:
    """The application's engine, of one connection, over a database with the model's table: rows 1 to 4."""
    owner = engine_over(db, "app_owner")
    Base.metadata.create_all(owner)
    owner.dispose()
    db.execute("insert into public.report (id, body, version) select n, 'old', 1 from generate_series(1, 4) n")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    engine = engine_over(db, pool_size=1, max_overflow=0, pool_timeout=5)
    yield engine
    engine.dispose()


@pytest.fixture
def fence(db: Database) -> Iterator[pyfence.Fence]:
    with pyfence.Fence(db.url("app")) as fence:
        yield fence


@pytest.fixture
def lease(engine: sa.Engine, fence: pyfence.Fence) -> pyfence.Lease:
    """The lease on report:1."""
    return fence.acquire("report:1")
