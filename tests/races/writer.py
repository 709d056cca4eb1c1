"""The write that the races are about, and the levels whose snapshots grow old."""

from __future__ import annotations

import psycopg
import pytest
from harness import Connection, Database

UPDATE = "update public.report set body = %s where id = 1"
SNAPSHOTS = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
snapshots = pytest.mark.parametrize("level", SNAPSHOTS, ids=lambda level: level.name.lower())


def write(connection: Connection, text: str = "A") -> int:
    """Rows changed."""
    return connection.execute(UPDATE, (text,)).rowcount


def body(db: Database) -> str:
    return str(db.execute("select body from public.report where id = 1")[0][0])
