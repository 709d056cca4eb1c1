"""All time is the database's: no client's clock is in any statement, and no session's time zone in any decision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import Database, wait_until
from privileges.test_properties import sources

import pyfence
from pyfence import _statements

#: What reads a clock that stands still in a transaction, or one without a time zone.
FROZEN_CLOCKS = re.compile(
    r"\b(now|transaction_timestamp|statement_timestamp|timeofday)\(|\b(current_timestamp|current_date|current_time"
    r"|localtime|localtimestamp)\b|at time zone|\btimestamp\b"
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every statement that goes through a psycopg cursor, with its parameters."""
    seen: list[tuple[str, Any]] = []
    execute = psycopg.Cursor.execute

    def recorded(self: Any, query: Any, params: Any = None, **more: Any) -> Any:
        seen.append((str(query), params))
        return execute(self, query, params, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", recorded)
    return seen


def values(params: Any) -> Iterator[Any]:
    if isinstance(params, (list, tuple)):
        for value in params:
            yield from values(value)
    else:
        yield params


def test_no_statement_of_the_client_carries_a_time_of_day(
    db: Database, report: str, sent: list[tuple[str, Any]]
) -> None:
    with pyfence.Fence(db.url("app")) as fence, fence.lease("report:1", ttl=0.6) as lease:
        first = lease.expires_at
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'new' where id = 1")
        lease.fenced_update("public.report", {"id": 1}, {"body": "newer"})
        with pytest.raises(pyfence.LeaseHeld):
            fence.acquire("report:1", wait=0.3)
        lease.renew()
        wait_until(lambda: lease.expires_at > first, "it has renewed by itself")
        with fence.transaction(lease, fence.acquire("report:2")):
            pass
    ours = [(query, params) for query, params in sent if "fence." in query]
    called = {name for query, _ in ours for name in re.findall(r"fence\.(\w+)\(", query)}
    assert called >= {"acquire", "_acquire_in_turn", "renew", "renew_all", "release"}
    assert called >= {"present", "present_all", "fenced_update"}
    for query, params in ours:
        assert not [value for value in values(params) if isinstance(value, (datetime, date, time, timedelta))], query
        assert "timestamp" not in query


def test_no_statement_has_a_place_for_one() -> None:
    """Also those that no test sends."""
    source = Path(_statements.__file__).read_text(encoding="utf-8")
    casts = set(re.findall(r"::pg_catalog\.(\w+)", source))
    assert "float8" in casts, "lengths of time are numbers of seconds"
    assert not {cast for cast in casts if cast.startswith(("time", "date", "interval"))}


def test_no_function_reads_a_clock_that_stands_still(db: Database) -> None:
    """A transaction may be older than the lease it asks about. Excepted: what no decision looks at."""
    found = {name: FROZEN_CLOCKS.findall(source) for name, (_, source) in sources(db).items()}
    assert {name for name, clocks in found.items() if clocks} == {"_new_guard", "_check_snapshot"}


@pytest.mark.parametrize("here", ["America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("there", ["UTC", "Pacific/Niue"])
def test_time_zones_of_databases_and_sessions_shift_nothing(db: Database, report: str, here: str, there: str) -> None:
    """Acquired in one zone, looked at, renewed and taken over in another."""
    db.execute(f"alter database {db.name} set timezone = '{here}'", user="fence_owner")
    one = db.connect("app", autocommit=True)
    two = db.connect("app", autocommit=True, options=f"-c timezone={there}")
    ((token, secret),) = one.execute("select token, secret from fence.acquire('report:1', '60 s')").fetchall()
    ((granted, retry),) = two.execute("select granted, retry_in from fence.acquire('report:1')").fetchall()
    assert not granted
    assert 55 < retry.total_seconds() <= 60
    ((left,),) = two.execute(
        "select fence.renew('report:1', %s, %s, '1 day') - clock_timestamp()", (token, secret)
    ).fetchall()
    assert 86395 < left.total_seconds() <= 86400
    two.execute("select fence.renew('report:1', %s, %s, '1 ms')", (token, secret))
    db.execute("select pg_sleep(0.01)")
    ((newer,),) = two.execute("select token from fence.acquire('report:1') where granted").fetchall()
    assert newer > token
