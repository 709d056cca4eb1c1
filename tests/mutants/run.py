"""Take one thing away from the SQL at a time and see whether a test notices.

    make mutants                                    everything that has not been judged yet
    make mutants ARGS="--minutes 20 --match _check_lease"
    make mutants ARGS="--list"

First the tests run once on the unchanged SQL: every one must pass, and PostgreSQL counts which functions each calls
(reach.py). Then each mutant is installed into a database of its own and the tests that call the changed function run
until the first one fails: *killed*, as is a mutant on which one test hangs. Where all pass it has *survived*;
*unfinished* means they took longer than --seconds. Results are kept in --results, so that a run goes on where the last
one ended; a file that has changed is judged again.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
sys.path[0] = str(TESTS)  # not the folder of this script, whose name tests/run has, too

import harness  # noqa: E402
from mutants.reach import Reach, Recorder, samples  # noqa: E402
from mutants.rules import Mutant, of_directory  # noqa: E402

from pyfence import _resources  # noqa: E402

EVERYTHING = (
    "guards", "writes", "races", "authority", "errors", "privileges", "trees", "badinput", "audit", "takeover",
    "attacks/test_exempt_roles.py", "attacks/test_names.py", "attacks/test_settings.py", "attacks/test_squatting.py",
    "attacks/test_stopped_statements.py", "run/test_run_codes.py", "restore/test_maintenance.py", "replication",
    "lifecycle/test_plan.py",
)  # fmt: skip
#: Asks the catalog alone.
CATALOG = "privileges/test_properties.py"
#: Which tests know most about a file, or about what a rule takes away: they run first.
FIRST: list[tuple[str, tuple[str, ...]]] = [
    (r"no constraint", (CATALOG,)),
    (r"stable:|invoker|caller's path|no bound|rights stay|not for replicas|own_tables_triggers", (CATALOG,)),
    (r"'s clock", ("takeover/test_time.py",)),
    (r"enable always", ("guards/test_replica.py", "privileges", "guards/test_protect.py")),
    (r"truncate", ("guards/test_truncate.py", "writes/test_counted_writes.py", "trees")),
    (r"_fence_(leave|arrive|row)|fence\.moving", ("trees",)),
    (r"triggers\.sql:[67]\d: not for", ("writes/test_token_column.py", "trees/test_later.py", "trees")),
    (r"not counted|triggers\.sql:4[0-7]", ("writes/test_counted_writes.py",)),
    (r"_accept|_sequence|_stamp|_token_column|_add_claim", ("writes/test_retries_in_crowds.py", "writes", "errors")),
    (r"_lease_lock", ("takeover/test_in_flight.py",)),
    (r"_guard_of\.sql|_check_alone|_named_table|_partition_columns|_passes", ("trees/test_later.py",)),
    (r"_unprepared|_limiting_language|_stopped|triggers\.sql:8\d", ("attacks/test_stopped_statements.py",)),
    (r"_late_triggers|_arm_statements|_undefine_guard", ("trees/test_partitions.py",)),
    (r"_check_table", ("guards/test_protect.py",)),
    (r"_faults", ("audit/test_guards.py",)),
    (r"_faults|_guard_state", ("audit", "guards/test_protect.py", "trees")),
    (r"no refusal|_check_", ("errors/test_words.py", "errors/test_hints.py", "badinput/test_bad_input.py")),
    (r"_begin_lease_change|_bound_idle|synchronous_commit", ("races/test_heartbeats.py",)),
    (r"_plan_protect", ("lifecycle/test_plan.py",)),
    (r"_guard_source.*_refuse|_find_source.*_refuse", ("errors/test_hints.py", "privileges/test_hijack.py")),
    (r"_next_token", ("races/test_clock.py", "authority")),
    (r"acquire\.sql", ("races/test_locks.py", "races/test_clock.py")),
    (r"_identity_change", ("authority/test_identity.py",)),
    (r"_guarded_table|_guard_of|_guard_state", ("audit/test_guards.py",)),
    (r"waiter|_acquire_in_turn|_decline", ("takeover/test_queue.py",)),
    (r"evict|_lease_lock", ("takeover/test_evict.py",)),
    (r"_finished", ("run/test_run_codes.py",)),
    (r"[cC]overing|_row_side|_rows_under|_hold_claim", ("guards/test_covering.py",)),
    (r"option|_adopt|lineage|_floor", ("authority/test_identity.py",)),
    (r"allow", ("authority/test_allow.py",)),
    (r"_lock_table|_stop_vacuum|_change_guard|_guard_state|exempt\.sql|v_former", ("races/test_guard_changes.py",)),
    (r"exempt|observe|violation|_passes|_log\b|prune", ("guards/test_observe.py", "attacks/test_exempt_roles.py")),
    (r"apply_worker", ("replication",)),
    (r"caller's path|invoker|rights stay|own_tables|_role_grants|_check_owner", ("privileges", "errors")),
    (r": no lock|: waits|: not unique|'s clock", ("races/test_locks.py", "races", "writes/test_retries_in_crowds.py")),
    (r"any order", ("races/test_crowds.py",)),
    (r"any order|no bound", ("races", "writes/test_retries_in_crowds.py", "guards/test_protect.py")),
    (r"_lease\.sql|acquire|_next_token|_is_live|authority|_ttl|_close", ("races", "authority", "guards")),
    (r"renew|release|revoke|_begin|_bound", ("authority", "races", "errors", "badinput")),
    (r"present|_claim|_is_current|_verdict", ("guards/test_claims.py", "errors", "badinput", "authority")),
    (
        r"_guard_triggers|_guard_source|_arm|_members|_tree|_partition|_late|_changed|_faults|_guard_state",
        ("guards/test_statements.py", "guards/test_moves.py", "guards/test_replica.py", "trees", "guards"),
    ),
    (
        r"protect|_define|_undefine|_new_guard|_check_table|_lock_table|_of\.sql|set_mode|_drop_unused|_create_guard",
        ("guards/test_protect.py", "privileges", "errors"),
    ),
    (r"_refuse|own_tables", ("errors/test_words.py", "errors", "guards/test_claims.py", "guards/test_keys.py")),
    (r"_check_|_template|_key|_encode|resource_|_value|_columns|_equality", ("errors", "badinput", "guards")),
]  # fmt: skip
#: What is judged first: what the guarantees rest on.
CORE = (
    "no lock", "waits", "not unique", "not counted", "no trigger", "not for this event", "not for replicas", "stable",
    "no refusal", "invoker", "rights stay", "no check", "no setting", "comparison left out", "the transaction's clock",
)  # fmt: skip

KILLED, SURVIVED, UNFINISHED, STILLBORN = "killed", "survived", "unfinished", "does not install"
PASSED, FAILED, NOT_INSTALLED = 0, 1, 3


def file_of(test: str) -> str:
    """The test's file, as FIRST names it."""
    return test.split("::")[0].removeprefix("tests/")


@cache
def callers(function: str) -> tuple[str, ...]:
    """A function and those that call it themselves."""
    files = _resources.sql_dir().rglob("*.sql")
    return (function, *(file.stem for file in files if f"fence.{function}(" in file.read_text("utf-8")))


def tests_for(mutant: Mutant, reach: Reach, tests: list[str], killers: Killers) -> list[str]:
    """Those of the tests that can notice a mutant, the most telling first: those that have killed one of its file
    before, then by file as FIRST says, then the fastest."""
    killed = [f"tests/{test}" for test in killers.get(mutant.path, ())]
    wanted = [name for pattern, names in FIRST if re.search(pattern, mutant.description) for name in names]
    function = Path(mutant.path).stem
    calls = re.compile(rf"\[.*\b(?:{'|'.join(callers(function))})\b")  # in a test's parameters
    able = {*reach.tests_of(function, tests), *(t for t in tests if file_of(t) in wanted or calls.search(t))}
    able.update(set(killed) & set(tests))
    few = samples(able)

    def rank(test: str) -> tuple[bool, bool, bool, bool, float]:
        """Samples and files of FIRST, the first of them before the others; then by time, less in folders of FIRST."""
        path = file_of(test)
        calling = calls.search(test) is not None
        weight = 0 if calling else 0.1 if path in wanted else 0.3 if path.split("/")[0] in wanted else 1
        return (
            test not in killed,
            not calling and path not in wanted and (test not in few or not reach.calls(function, test)),
            not calling and path not in wanted and not reach.calls(function, test),
            path not in wanted[:1],
            weight * max(reach.time_of(test), 0.05),
        )

    return sorted(able, key=rank)


#: By file of the SQL: the tests that have killed one of its mutants.
Killers = dict[str, set[str]]


class Judge:
    """A plugin of pytest: one server, one folder, the tests collected once. Its job takes the place of the run.

    Each mutant is judged in a child process, so that none leaves a trace in the next.
    """

    def __init__(self, job: Callable[[Judge], None]) -> None:
        self.job = job
        self.folder = Path(tempfile.mkdtemp(prefix="pyfence-mutants-"))
        shutil.copytree(_resources.frozen_dir(), self.folder / "frozen")
        self._make, self._launch = harness.Cluster, harness.Postgresql.launch
        self.cluster = self._make(self._launch())
        self.count = itertools.count(1)

    def start(self) -> None:
        """Collect the tests and do the job; the server ends with it."""
        options = [
            "-x",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "--no-header",
            "--tb=short",
            "-n",
            "0",
        ]
        os.chdir(ROOT)
        harness.Cluster = lambda server: self.cluster  # type: ignore[assignment,misc]  # what conftest.py will import
        harness.Postgresql.launch = lambda: None  # type: ignore[assignment,method-assign]
        try:
            code = pytest.main([*options, *(str(TESTS / name) for name in EVERYTHING)], plugins=[self])
            if code != pytest.ExitCode.OK:
                raise RuntimeError(f"pytest ended with {code!r}")
        finally:
            self.cluster.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.job(self)
        return True

    @property
    def tests(self) -> list[str]:
        return [item.nodeid for item in self.session.items]

    def record(self) -> Reach:
        """Run samples of every test on the SQL as it is. All must pass, or mutants die of what is wrong already."""
        path = self.folder / "reach.json"
        answer = self._answer(None, lambda: self._record(path), 3600)
        if answer != (PASSED, ""):
            raise RuntimeError(f"on the unchanged SQL: {answer}\n{(self.folder / 'log').read_text()[-3000:]}")
        return Reach.read(path)

    def judge(self, mutant: Mutant, text: str, tests: list[str], reach: Reach, seconds: float) -> tuple[str, str]:
        """What became of a mutant under these tests, and the one that killed it."""
        answer = self._answer((mutant, text), lambda: self._run(tests, reach), seconds)
        if answer is None:
            return UNFINISHED, ""
        return {PASSED: SURVIVED, FAILED: KILLED, NOT_INSTALLED: STILLBORN}[answer[0]], answer[1]

    def confirm(self, test: str, reach: Reach) -> None:
        """A test that kills must pass on the SQL as it is, by itself: one that needs another before it kills all."""
        answer = self._answer(None, lambda: self._run([test], reach), 300)
        if answer != (PASSED, ""):
            raise RuntimeError(
                f"{test} alone, on the unchanged SQL: {answer}\n{(self.folder / 'log').read_text()[-3000:]}"
            )

    def _answer(
        self, change: tuple[Mutant, str] | None, run: Callable[[], tuple[int, str]], seconds: float
    ) -> tuple[int, str] | None:
        """What a child says that has installed the SQL with a change and run tests; None: it took too long."""
        up = self.folder / "frozen" / "0001" / "up"
        shutil.rmtree(up)
        shutil.copytree(_resources.sql_dir(), up)
        if change is not None:
            (up / change[0].path).write_text(change[0].applied(change[1]), encoding="utf-8")
        self._sweep()
        prefix = f"mutant_{next(self.count)}"
        file = self.folder / "answer"
        file.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                file.write_text(json.dumps(self._install(prefix) or run()))
            finally:
                os._exit(0)
        end = time.monotonic() + seconds
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                self.cluster.close()  # its backends may still be at work
                self.cluster = self._make(self._launch())
                return None
            time.sleep(0.02)
        if not file.exists():
            raise RuntimeError(f"the child ended without an answer, see {(self.folder / 'log').read_text()[-2000:]}")
        code, test = json.loads(file.read_text())
        return code, test

    def _install(self, prefix: str) -> tuple[int, str] | None:
        out = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        cluster = self.cluster
        cluster.admin = psycopg.connect(cluster.url("postgres", harness.SUPERUSER), autocommit=True)
        cluster._names = (f"{prefix}_{number}" for number in itertools.count(1))
        cluster._template = None
        cluster.close = lambda: None  # type: ignore[method-assign]
        _resources.frozen_dir = lambda: self.folder / "frozen"
        try:
            cluster.drop_database(cluster.create_database())
        except Exception as error:
            return NOT_INSTALLED, str(error).splitlines()[0]
        return None

    def _run(self, tests: list[str], reach: Reach) -> tuple[int, str]:
        """Run until one fails. A test that takes 30 seconds and ten times as long as it should has failed."""
        items = {item.nodeid: item for item in self.session.items}
        self.session.items = [items[test] for test in tests]
        for item in self.session.items:
            item.add_marker(pytest.mark.timeout(30 + 10 * reach.time_of(item.nodeid)), append=False)
        failures = Failures()
        self.session.config.pluginmanager.register(failures)
        self._loop()
        return (FAILED, failures.tests[0].removeprefix("tests/")) if failures.tests else (PASSED, "")

    def _record(self, path: Path) -> tuple[int, str]:
        recorder = Recorder(self.cluster)
        few = samples(self.tests)
        self.session.items = [item for item in self.session.items if item.nodeid in few]
        self.session.config.pluginmanager.register(recorder)
        self._loop()
        recorder.finish().write(path)
        return (FAILED, recorder.failed[0]) if recorder.failed else (PASSED, "")

    def _loop(self) -> None:
        self.session.config.pluginmanager.unregister(self)
        with contextlib.suppress(pytest.Session.Failed, pytest.Session.Interrupted):
            self.session.config.hook.pytest_runtestloop(session=self.session)

    def _sweep(self) -> None:
        """Drop what the last child left: a role that is there already would fail the next one's tests."""
        admin = self.cluster.admin
        for gid, database in admin.execute("select gid, database from pg_prepared_xacts").fetchall():
            with psycopg.connect(self.cluster.url(database, harness.SUPERUSER), autocommit=True) as connection:
                connection.execute(f"rollback prepared '{gid}'")
        left = "select datname from pg_database where datname ~ '^mutant_' or datname = %s"
        for (name,) in admin.execute(left, (harness.TEMPLATE,)).fetchall():
            admin.execute(f"alter database {name} is_template false")
            admin.execute(f"drop database {name} with (force)")
        for (slot,) in admin.execute("select slot_name from pg_replication_slots where not active").fetchall():
            admin.execute("select pg_drop_replication_slot(%s)", (slot,))
        for member, of in admin.execute("select member::regrole, roleid::regrole from pg_auth_members").fetchall():
            if member in harness.ROLES:
                admin.execute(f"revoke {of} from {member}")
        for (role,) in admin.execute("select oid::regrole from pg_roles where rolname !~ '^pg_'").fetchall():
            kept = role == harness.SUPERUSER or role in harness.ROLES
            admin.execute(f"alter role {role} reset all" if kept else f"drop role {role}")
        admin.execute("alter system reset all")
        admin.execute("select pg_reload_conf()")


class Failures:
    """A plugin of pytest that remembers which tests failed."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests.append(report.nodeid)
            print(report.longreprtext)


def work(
    judge: Judge, todo: list[tuple[str, Mutant, str]], options: argparse.Namespace, killers: Killers, end: float
) -> None:
    """Judge the mutants of a list, one after the other, until the time is over."""
    reach = Reach.read(options.reach)
    tests = [test for test in judge.tests if not options.tests or test.startswith(tuple(options.tests))]
    confirmed: set[str] = set()
    for key, mutant, text in todo:
        if time.monotonic() > end:
            return
        start = time.monotonic()
        verdict, test = judge.judge(mutant, text, tests_for(mutant, reach, tests, killers), reach, options.seconds)
        if options.tests and verdict == SURVIVED:
            verdict = UNFINISHED
        row = {"key": key, "verdict": verdict, "mutant": mutant.description, "test": test,
               "seconds": round(time.monotonic() - start, 1)}  # fmt: skip
        if verdict == KILLED and test not in confirmed:
            judge.confirm(f"tests/{test}", reach)
            confirmed.add(test)
        with open(options.results, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{verdict:>10} {row['seconds']:6.1f} s  {mutant.description}  {test}", flush=True)


def in_children(jobs: list[Callable[[Judge], None]]) -> bool:
    """Do the jobs, each in a process of its own with a server of its own; whether all went well."""
    children = []
    for job in jobs:
        child = os.fork()
        if child == 0:
            try:
                Judge(job).start()
            except KeyboardInterrupt:
                os._exit(130)
            except BaseException as error:
                print(f"{error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    return not [child for child in children if os.waitpid(child, 0)[1] != 0]


def report(mutants: dict[str, Mutant], results: dict[str, dict[str, str]]) -> int:
    """Print the figures and the survivors; 1 if fewer than 95 % of those judged were killed."""
    counts = Counter(results[key]["verdict"] for key in mutants if key in results)
    judged = counts[KILLED] + counts[SURVIVED] + counts[UNFINISHED]  # what nobody has killed lives
    print(f"\n{len(mutants)} mutants: {dict(counts)}, {len(mutants) - sum(counts.values())} not judged yet")
    for key, mutant in mutants.items():
        if results.get(key, {}).get("verdict") in (SURVIVED, UNFINISHED):
            print(f"  {results[key]['verdict']}: {mutant.description}")
    if judged:
        print(f"killed: {counts[KILLED]} of {judged}, {100 * counts[KILLED] / judged:.1f} %")
    return 1 if judged and counts[KILLED] < 0.95 * judged else 0


def main() -> int:
    """Judge, in as many processes as there are processors, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=TESTS / "mutants" / "results.jsonl")
    parser.add_argument(
        "--reach",
        type=Path,
        default=ROOT / "build" / "reach.json",
        help="which test calls what; remove it to count again",
    )
    parser.add_argument("--match", default="", help="only mutants whose description matches this expression")
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after this time")
    parser.add_argument("--seconds", type=float, default=300, help="the longest that the tests of one mutant may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="judge unfinished and surviving ones again")
    parser.add_argument(
        "--tests",
        nargs="+",
        help="only tests that begin so, as tests/guards/test_keys.py; a mutant that survives them is unfinished",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    options = parser.parse_args()

    sql = _resources.sql_dir()
    texts = {mutant.path: (sql / mutant.path).read_text("utf-8") for mutant in of_directory(sql)}
    every = {mutant.key(texts[mutant.path]): mutant for mutant in of_directory(sql)}
    mutants = {key: mutant for key, mutant in every.items() if re.search(options.match, mutant.description)}
    if options.list:
        print("\n".join(mutant.description for mutant in mutants.values()))
        return 0
    options.results.parent.mkdir(parents=True, exist_ok=True)

    def read() -> dict[str, dict[str, str]]:
        lines = options.results.read_text("utf-8").splitlines() if options.results.exists() else []
        return {row["key"]: row for row in map(json.loads, lines)}

    done = {key for key, row in read().items() if not options.again or row["verdict"] in (KILLED, STILLBORN)}
    todo = [(key, mutant, texts[mutant.path]) for key, mutant in mutants.items() if key not in done]
    todo.sort(key=lambda item: CORE.index(item[1].rule) if item[1].rule in CORE else len(CORE))
    end = time.monotonic() + 60 * options.minutes
    if todo and not options.reach.exists():
        print("the tests run once on the unchanged SQL", flush=True)
        if not in_children([lambda judge: judge.record().write(options.reach)]):
            return 1
    killers: Killers = {}
    for row in read().values():  # of former versions of a file, too
        killers.setdefault(row["mutant"].partition(":")[0], set()).add(row["test"])
    jobs = [
        partial(work, todo=todo[n :: options.jobs], options=options, killers=killers, end=end)
        for n in range(options.jobs)
    ]
    worked = in_children(jobs[: len(todo)])
    results = read()
    options.results.write_text(
        "".join(json.dumps(results[key], ensure_ascii=False) + "\n" for key in every if key in results), "utf-8"
    )
    return report(mutants, results) or (0 if worked else 1)


if __name__ == "__main__":
    sys.exit(main())
