"""fence.metrics, and the exporters' query files, as a monitor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import Database, edit_authority, sqlstate

FOLDER = Path(__file__).parents[2] / "docs" / "dba" / "prometheus"
QUERY = re.compile(r"""query: (?:\|\n((?: {6}.*\n)+)|"(.*)")""")


def metrics(db: Database) -> dict[tuple[str, str | None], float]:
    rows = db.execute("select metric, label, value from fence.metrics", user="monitor")
    return {(metric, label): value for metric, label, value in rows}


def test_what_it_counts(db: Database) -> None:
    assert metrics(db)["leases", "held"] == 0
    assert metrics(db)["guards_not_armed", None] == 0
    db.execute("create table public.report (id bigint primary key)")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    db.execute("select fence.acquire('a'), fence.acquire('b', '1 hour')", user="app")
    db.execute("select fence.revoke('a', 'test')")
    db.execute("alter table public.report enable trigger all")
    seen = metrics(db)
    assert (seen["leases", "held"], seen["leases", "closed"]) == (1, 1)
    assert (seen["guards", "enforce"], seen["guards", "observe"], seen["guards_not_armed", None]) == (1, 0, 1)
    assert (seen["events", "granted"], seen["events", "closed"], seen["events", "protected"]) == (2, 1, 1)
    assert not any(metric == "violations_last_hour" for metric, _ in seen)
    db.execute("select fence.set_mode('public.report', 'observe')")
    db.execute("insert into public.report values (1)", user="outsider")
    seen = metrics(db)
    assert (seen["violations_last_hour", "LF004"], seen["guards", "observe"], seen["guards_not_armed", None]) == (
        1,
        1,
        0,
    )
    assert 3500 < seen["seconds_until_first_expiry", None] <= 3600
    assert seen["lineage", None] > 0
    assert seen["identity_changed", None] == 0
    assert (seen["in_flight", None], seen["waiting", None]) == (0, 0)
    db.execute("select fence._acquire_in_turn('b', '1 s', 'x', 0, null)", user="app")
    holder = db.connect("app")
    holder.execute("select fence.enter('c')")
    seen = metrics(db)
    assert (seen["in_flight", None], seen["waiting", None]) == (1, 1)
    holder.rollback()
    edit_authority(db.url("fence_owner"), "timeline = '0000002A'")
    assert metrics(db)["identity_changed", None] == 1


def test_only_for_monitors(db: Database) -> None:
    for user in ("app", "outsider"):
        with sqlstate("42501"):
            db.execute("select * from fence.metrics", user=user)


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.iterdir()))
def test_the_exporters_queries_run(db: Database, file: str) -> None:
    db.execute("select fence.acquire('b', '1 hour')", user="app")
    db.execute("create table public.report (id bigint primary key)")
    db.execute("select fence.protect('public.report', 'report:{id}', 'observe')")
    db.execute("insert into public.report values (1)", user="outsider")
    queries = [block or line for block, line in QUERY.findall((FOLDER / file).read_text())]
    assert queries
    for query in queries:
        assert db.execute(query, user="monitor"), query
