"""Jobs as they are: a load that is killed halfway, a script that presents in autocommit."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest
from guards.scene import Lease, acquire, expire, present
from harness import Database, sqlstate, wait_until
from run.runner import Runner, job, wait_until_gone

LOAD = "insert into public.report select n, 'bulk' from generate_series(2, 2000) n"


def faults(db: Database) -> list[tuple[object, ...]]:
    return db.execute("select code, object from fence.audit() where severity = 'error'")


def test_a_load_that_is_killed_leaves_guard_and_table_as_they_were(run: Runner) -> None:
    """As the table's owner, no superuser, with no trigger disabled; and then it is done again."""
    owner = Runner(run.db, "app_owner")
    halfway = ["sh", "-c", 'echo $$; exec "$@"', "sh", *job(f"begin; {LOAD}; select pg_sleep(60)")]
    with owner.start("--ttl", "60", command=halfway) as started:
        sleeping = "select count(*) from pg_stat_activity where datname = %s and wait_event = 'PgSleep'"
        admin = run.db.cluster.admin
        wait_until(lambda: admin.execute(sleeping, (run.db.name,)).fetchall() == [(1,)], "the load is halfway")
        started.signal(signal.SIGKILL)
        wait_until_gone(started.child)
    here = "datname = %s and wait_event = 'PgSleep'"
    admin.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {here}", (run.db.name,))
    assert run.db.execute("select count(*) from public.report") == [(1,)]
    assert faults(run.db) == []
    with sqlstate("LF004"):
        run.db.execute(LOAD)
    expire(run.db, "nightly")
    assert owner("--wait", "20", command=job(LOAD)).out == "done\n"
    assert run.db.execute("select count(*) from public.report") == [(2000,)]
    assert faults(run.db) == []


@pytest.fixture
def lease(run: Runner) -> Lease:
    return acquire(run.db, "nightly")


WRITE = "update public.report set body = 'new'"


def test_presenting_in_autocommit_lasts_for_nothing(run: Runner, lease: Lease) -> None:
    """The next statement is refused, with a hint that says to use a transaction, and no later one profits."""
    conn = run.db.connect("app", autocommit=True)
    present(conn, lease)
    with sqlstate("LF004") as refused:
        conn.execute(WRITE)
    assert "same transaction" in refused.diag.message_detail
    with sqlstate("LF004"), conn.transaction():
        conn.execute(WRITE)
    with conn.transaction():
        present(conn, lease)
        conn.execute(WRITE)
    with sqlstate("LF004"):
        conn.execute(WRITE)


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql: its autocommit mode was not tried")
def test_a_psql_script_in_autocommit(run: Runner, lease: Lease) -> None:
    call = "select fence.present('nightly', {}, '{}');\n".format(*lease.parameters[1:])
    for script, refused in ((f"{call}{WRITE};\n", True), (f"begin;\n{call}{WRITE};\ncommit;\n", False)):
        done = subprocess.run(
            ["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d", run.db.url("app")],
            input=f"\\set AUTOCOMMIT on\n{script}",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ("LF004" in done.stderr, done.returncode != 0) == (refused, refused)
        assert run.db.execute("select body from public.report") == [("old" if refused else "new",)]
