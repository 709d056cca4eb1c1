"""Which test calls which function of the SQL, and how long it takes: a mutant meets the tests that can notice it.

PostgreSQL counts the calls (track_functions), but not those of an SQL function that it has written into the calling
statement: where no call was counted, as for files that hold no function, every test is one that can notice.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import harness
import psycopg
import pytest

CALLED = """
    select s.funcname::text from pg_stat_user_functions s where s.schemaname = 'fence'
"""


def family(test: str) -> str:
    """A test without its parameters."""
    return test.split("[")[0]


def samples(tests: Iterable[str]) -> set[str]:
    """Of each test the first and the last set of parameters."""
    members = defaultdict(list)
    for test in tests:
        members[family(test)].append(test)
    return {test for found in members.values() for test in (found[0], found[-1])}


@dataclass
class Reach:
    """What samples of each family of tests took, in seconds, and which functions they called."""

    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)

    def tests_of(self, function: str, tests: list[str]) -> list[str]:
        """Those of the tests that call a function, the others of their files (other parameters may call it, too), and
        those that were never counted; all where no call was counted."""
        files = {test.split("::")[0] for test, names in self.functions.items() if function in names}
        return [t for t in tests if not files or t.split("::")[0] in files or family(t) not in self.functions]

    def calls(self, function: str, test: str) -> bool:
        """Whether a sample of the test called a function."""
        return function in self.functions.get(family(test), ())

    def time_of(self, test: str) -> float:
        """Seconds, 0 if not known."""
        return self.seconds.get(family(test), 0)

    @classmethod
    def read(cls, path: Path) -> Reach:
        stored = json.loads(path.read_text("utf-8"))
        return cls(stored["seconds"], stored["functions"])

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"seconds": self.seconds, "functions": self.functions}), encoding="utf-8")


class Recorder:
    """A plugin of pytest that fills a Reach while the tests run on the unchanged SQL."""

    def __init__(self, cluster: harness.Cluster) -> None:
        self.reach = Reach()
        self.failed: list[str] = []
        self._test = ""
        self._seconds: dict[str, float] = defaultdict(float)
        self._made: dict[str, str] = {}
        self._called: dict[str, set[str]] = defaultdict(set)
        self._cluster = cluster
        self._create, self._drop = cluster.create_database, cluster.drop_database
        cluster.admin.execute("alter system set track_functions = 'all'")
        cluster.admin.execute("select pg_reload_conf()")
        cluster.create_database = self._note  # type: ignore[method-assign]
        cluster.drop_database = self._collect  # type: ignore[method-assign]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
            print(report.longreprtext)
        if report.when != "setup":  # the setup of the first one makes the template
            self._seconds[report.nodeid] += report.duration

    def _note(self, *, empty: bool = False) -> str:
        name = self._create(empty=empty)
        self._made[name] = self._test
        return name

    def _collect(self, name: str) -> None:
        admin = self._cluster.admin
        here = "from pg_stat_activity where datname = %s and backend_type = 'client backend'"
        admin.execute(f"select pg_terminate_backend(pid) {here}", (name,))  # a backend counts its calls as it ends
        harness.wait_until(lambda: not admin.execute(f"select {here}", (name,)).fetchall(), f"{name} is left alone")
        with psycopg.connect(self._cluster.url(name, harness.SUPERUSER)) as connection:
            called = {function for (function,) in connection.execute(CALLED)}
        made = self._made.pop(name, self._test)
        self._called[made if made == self._test else made.split("::")[0]] |= called
        self._drop(name)

    def finish(self) -> Reach:
        """What was found. A database that several tests shared counts for every test of their file."""
        found: dict[str, set[str]] = defaultdict(set)
        for test, seconds in self._seconds.items():
            found[family(test)] |= self._called[test] | self._called[test.split("::")[0]]
            self.reach.seconds[family(test)] = round(max(seconds, self.reach.seconds.get(family(test), 0)), 3)
        self.reach.functions.update({test: sorted(names) for test, names in found.items()})
        return self.reach
