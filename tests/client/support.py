"""What the tests of the Python client look at and do to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import sqlalchemy
from harness import Database, wait_until
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine


def body(db: Database, number: int = 1) -> str:
    """What stands in a report."""
    ((text,),) = db.execute("select body from public.report where id = %s", (number,), user="outsider")
    return str(text)


def backends(db: Database, user: str = "app") -> list[tuple[int, str]]:
    """Pid and state of the role's connections to the test's database."""
    rows = db.cluster.admin.execute(
        "select pid, state from pg_stat_activity where datname = %s and usename = %s order by pid", (db.name, user)
    ).fetchall()
    return [(pid, state) for pid, state in rows]


def terminate(db: Database, user: str = "app") -> int:
    """Ends every backend of the role; returns how many, once they are gone."""
    pids = [pid for pid, _ in backends(db, user)]
    for pid in pids:
        db.cluster.admin.execute("select pg_terminate_backend(%s)", (pid,))
    wait_until(lambda: not {pid for pid, _ in backends(db, user)} & set(pids), "the backends have ended")
    return len(pids)


@contextmanager
def source(kind: str, url: str, *, size: int = 2) -> Iterator[Any]:
    """What a Fence may be made over: 'url', 'pool' or 'engine', of at most `size` connections; closed at the end."""
    if kind == "url":
        yield url
    elif kind == "pool":
        with ConnectionPool(url, min_size=size, max_size=size, open=True) as pool:
            yield pool
    else:
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", connect_args=conninfo_to_dict(url), pool_size=size, max_overflow=0
        )
        yield engine
        engine.dispose()


@asynccontextmanager
async def async_source(kind: str, url: str, *, size: int = 2) -> AsyncIterator[Any]:
    """What an AsyncFence may be made over, of at most `size` connections; closed at the end."""
    if kind == "url":
        yield url
    elif kind == "pool":
        async with AsyncConnectionPool(url, min_size=size, max_size=size, open=False) as pool:
            yield pool
    else:
        engine = create_async_engine(
            "postgresql+psycopg://", connect_args=conninfo_to_dict(url), pool_size=size, max_overflow=0
        )
        yield engine
        await engine.dispose()


def idle_in_transaction(db: Database) -> list[str]:
    return [state for _, state in backends(db) if state and state.startswith("idle in transaction")]
