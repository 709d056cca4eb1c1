"""Fixtures every test may use; see harness.py for what they are made of."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

pytest.register_assert_rewrite("harness", "proxy")
for name in [name for name in os.environ if name.startswith("PG") or name == "PYFENCE_DATABASE_URL"]:
    del os.environ[name]  # the caller's own database is none of the tests' business

for number in (signal.SIGINT, signal.SIGQUIT):  # ignored where a script has started the run in the background
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

from harness import Cluster, Database, Postgresql  # noqa: E402
from proxy import Proxy  # noqa: E402


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The server of this process: roles made, template migrated."""
    cluster = Cluster(Postgresql.launch())
    yield cluster
    cluster.close()


@pytest.fixture
def db(cluster: Cluster) -> Iterator[Database]:
    """A database of the test's own, with pyfence installed."""
    database = Database(cluster)
    yield database
    database.close()


@pytest.fixture
def empty_db(cluster: Cluster) -> Iterator[Database]:
    """A database of the test's own, without pyfence."""
    database = Database(cluster, empty=True)
    yield database
    database.close()


@pytest.fixture(params=list(psycopg.IsolationLevel)[1:], ids=lambda level: level.name.lower())
def isolation(request: pytest.FixtureRequest) -> psycopg.IsolationLevel:
    """READ COMMITTED, REPEATABLE READ and SERIALIZABLE, one after the other."""
    level: psycopg.IsolationLevel = request.param
    return level


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test at three levels with other parameters, the default run takes a Latin square: every level, every other
    combination, not each with each; of the writes that are counted every second one. The rest is marked `full`."""
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, same in tests.items():
        if "isolation" in same[0].callspec.indices:
            step = min(3, len({_others(item) for item in same}))
        else:
            step = 2 if name.startswith("tests/writes/") and len(same) >= 6 else 1
        for item in same:
            if (sum(_others(item)) + item.callspec.indices.get("isolation", 0)) % step:
                item.add_marker("full")


def _others(item: pytest.Function) -> tuple[int, ...]:
    return tuple(number for name, number in sorted(item.callspec.indices.items()) if name != "isolation")


@pytest.fixture
def wait_until_blocked(db: Database) -> Callable[..., None]:
    """`wait_until_blocked(connection_or_pid, by=...)` returns when that backend waits for a lock."""
    return db.wait_until_blocked


@pytest.fixture
def in_thread(db: Database) -> Callable[..., Future[Any]]:
    """`in_thread(call, *args)` starts a call that may wait and returns its future."""
    return db.in_thread


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """A TCP proxy before the server that can hold bytes back; `proxy.url(db.url("app"))` leads through it."""
    with Proxy(cluster.server.settings["port"]) as proxy:
        yield proxy
