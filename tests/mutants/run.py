"""Take one thing away from the SQL at a time and see whether a test notices.

    make mutants                                    everything that has not been judged yet
    make mutants ARGS="--minutes 20 --match _check_lease"
    make mutants ARGS="--list"

Each mutant is installed into a database of its own and the tests of the SQL run against it until the first one fails:
*killed*. Where all pass it has *survived*; *unfinished* means the tests took longer than --seconds. Results are kept
in --results, so that a run goes on where the last one ended; a file that has changed is judged again.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))

import harness  # noqa: E402
from mutants.rules import Mutant, of_directory  # noqa: E402

from pyfence import _resources  # noqa: E402

EVERYTHING = ("guards", "writes", "races", "authority", "errors", "privileges", "trees", "badinput", "audit")
#: Which tests know most about a file, or about what a rule takes away: they run first.
FIRST: list[tuple[str, tuple[str, ...]]] = [
    (r"enable always", ("guards/test_replica.py", "privileges", "guards/test_protect.py")),
    (r"truncate", ("guards/test_truncate.py", "writes/test_counted_writes.py", "trees")),
    (r"_fence_(leave|arrive|row)|fence\.moving", ("trees",)),
    (r"triggers\.sql:[67]\d: not for", ("writes/test_token_column.py", "trees/test_later.py", "trees")),
    (r"not counted|triggers\.sql:4[0-6]", ("writes/test_counted_writes.py",)),
    (r"_accept|_sequence|_stamp|_token_column|_add_claim", ("writes/test_retries_in_crowds.py", "writes", "errors")),
    (r"_faults|_guard_state", ("audit", "guards/test_protect.py", "trees")),
    (r"_next_token", ("races/test_clock.py", "authority")),
    (r"caller's path|invoker|rights stay|own_tables|_role_grants|_check_owner", ("privileges", "errors")),
    (r": no lock|: waits|: not unique|'s clock", ("races/test_locks.py", "races", "writes/test_retries_in_crowds.py")),
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
    (r"_refuse", ("errors", "guards/test_claims.py", "guards/test_keys.py")),
    (r"_check_|_template|_key|_encode|resource_|_value|_columns|_equality", ("errors", "badinput", "guards")),
]  # fmt: skip
#: What is judged first: what the guarantees rest on.
CORE = (
    "no lock", "waits", "not unique", "not counted", "no trigger", "not for this event", "not for replicas", "stable",
    "no refusal", "invoker", "rights stay", "no check", "no setting", "comparison left out", "the transaction's clock",
)  # fmt: skip

KILLED, SURVIVED, UNFINISHED, STILLBORN = "killed", "survived", "unfinished", "does not install"


def tests_for(mutant: Mutant) -> list[str]:
    """Paths of tests, the most telling first; then all the others."""
    wanted = [name for pattern, names in FIRST if re.search(pattern, mutant.description) for name in names]
    files: dict[str, None] = {}
    for name in (*wanted, *EVERYTHING):
        path = TESTS / name
        for file in sorted(path.glob("test_*.py")) if path.is_dir() else [path]:
            files.setdefault(str(file))
    return list(files)


class _Names:
    """Ends the run at the first failure and remembers its name; ends it with 3 where the mutant does not install."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


class Judge:
    """One server and one folder; each mutant is judged in a child process, so that none leaves a trace in the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.folder = Path(tempfile.mkdtemp(prefix="pyfence-mutants-"))
        shutil.copytree(_resources.frozen_dir(), self.folder / "frozen")
        self.cluster = harness.Cluster(harness.Postgresql.launch())
        self.count = itertools.count(1)

    def judge(self, mutant: Mutant, text: str, tests: list[str], seconds: float) -> tuple[str, str]:
        """What became of a mutant under these tests, and the one that killed it."""
        up = self.folder / "frozen" / "0001" / "up"
        shutil.rmtree(up)
        shutil.copytree(_resources.sql_dir(), up)
        (up / mutant.path).write_text(mutant.applied(text), encoding="utf-8")
        self._sweep()
        prefix = f"mutant_{next(self.count)}"
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                os._exit(self._run(tests, prefix, answer))
            finally:
                os._exit(70)
        end = time.monotonic() + seconds
        status = 0
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return UNFINISHED, ""
            time.sleep(0.05)
        status = os.waitstatus_to_exitcode(done[1])
        verdict = {0: SURVIVED, 1: KILLED, 2: KILLED, 3: STILLBORN}.get(status)
        if verdict is None:
            raise RuntimeError(f"the tests of {mutant.description} ended with {status}")
        return verdict, answer.read_text() if answer.exists() else ""

    def _run(self, tests: list[str], prefix: str, answer: Path) -> int:
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
            answer.write_text(str(error).splitlines()[0])
            return 3
        harness.Cluster = lambda server: cluster  # type: ignore[assignment,misc]
        harness.Postgresql.launch = lambda: None  # type: ignore[assignment,method-assign]
        names = _Names()
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=short", "-n", "0"]
        os.chdir(ROOT)
        code = int(pytest.main([*options, *tests], plugins=[names]))
        answer.write_text(names.failed.removeprefix("tests/"))
        return code

    def _sweep(self) -> None:
        """Drop what the last child left."""
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

    def close(self) -> None:
        self.cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def work(number: int, jobs: int, todo: list[tuple[str, Mutant, str]], options: argparse.Namespace, end: float) -> None:
    """Judge every jobs-th mutant of the list until the time is over."""
    judge = Judge(number)
    try:
        for key, mutant, text in todo[number::jobs]:
            if time.monotonic() > end:
                return
            start = time.monotonic()
            tests = options.tests or tests_for(mutant)
            verdict, test = judge.judge(
                mutant, text, tests, min(options.seconds, max(1.0, end - start + options.seconds))
            )
            if options.tests and verdict == SURVIVED:
                verdict = UNFINISHED
            row = {"key": key, "verdict": verdict, "mutant": mutant.description, "test": test,
                   "seconds": round(time.monotonic() - start, 1)}  # fmt: skip
            with open(options.results, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{verdict:>10} {row['seconds']:6.1f} s  {mutant.description}  {test}", flush=True)
    finally:
        judge.close()


def report(mutants: dict[str, Mutant], results: dict[str, dict[str, str]]) -> int:
    """Print the figures and the survivors; 1 if fewer than 95 % of those judged were killed."""
    counts = Counter(results[key]["verdict"] for key in mutants if key in results)
    judged = counts[KILLED] + counts[SURVIVED]
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
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--match", default="", help="only mutants whose description matches this expression")
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after this time")
    parser.add_argument("--seconds", type=float, default=900, help="the longest that the tests of one mutant may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="judge unfinished and surviving ones again")
    parser.add_argument(
        "--tests", nargs="+", help="these tests and no others; a mutant that survives them is unfinished"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    options = parser.parse_args()

    sql = _resources.sql_dir()
    texts = {mutant.path: (sql / mutant.path).read_text("utf-8") for mutant in of_directory(sql)}
    mutants = {mutant.key(texts[mutant.path]): mutant for mutant in of_directory(sql)}
    mutants = {key: mutant for key, mutant in mutants.items() if re.search(options.match, mutant.description)}
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
    children = []
    for number in range(min(options.jobs, len(todo))):
        child = os.fork()
        if child == 0:
            try:
                work(number, options.jobs, todo, options, end)
            except KeyboardInterrupt:
                os._exit(130)
            except BaseException as error:
                print(f"worker {number}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    return report(mutants, read()) or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
