"""Where others might read a lease's secret: activity, statistics, the server's log, error texts, processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from cli.command import PROGRAM
from harness import SUPERUSER, Cluster, Database, Postgresql

import pyfence

EXTENSION = "pg_stat_statements"


class Watched(Postgresql):
    """A server that writes down all it can."""

    SETTINGS: ClassVar = {
        **Postgresql.SETTINGS,
        "log_statement": "all",
        "log_min_duration_statement": 0,
        "log_parameter_max_length": 0,  # what the doctor asks for; the default, -1, prints every parameter
        "shared_preload_libraries": EXTENSION,
    }


@pytest.fixture(scope="module")
def watched() -> Iterator[Database]:
    """A database on such a server, with a protected table and, where it can be had, pg_stat_statements."""
    try:
        cluster = Cluster(Watched.launch())
    except RuntimeError:
        pytest.skip(f"this PostgreSQL comes without {EXTENSION}: nothing was looked for in statistics and logs")
    try:
        database = Database(cluster)
        database.connect(SUPERUSER, autocommit=True).execute(f"create extension {EXTENSION} schema public")
        database.execute("create table public.report (id int primary key, body text)")
        database.execute("insert into public.report values (1, 'old')")
        database.execute("select fence.protect('public.report', 'report:{id}')")
        yield database
        database.close()
    finally:
        cluster.close()


def log(db: Database) -> str:
    return Path(f"{db.cluster.server.base_dir}/{db.cluster.server.name}.log").read_text("utf-8", "replace")


def statistics(db: Database) -> str:
    rows = db.execute("select query from public.pg_stat_statements", user=SUPERUSER)
    return "\n".join(query for (query,) in rows)


def activity(db: Database) -> str:
    return "\n".join(str(row) for row in db.execute("select a::text from pg_stat_activity a", user=SUPERUSER))


def test_the_client_leaves_its_secret_nowhere(watched: Database) -> None:
    """Acquire, renew, present, write, be refused, release: all parameters are bound."""
    with pyfence.Fence(watched.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=30)
        lease.renew()
        with lease.transaction() as conn:
            conn.execute("update public.report set body = 'new' where id = 1")
            assert lease.claim.secret not in activity(watched)
        lease.fenced_update("public.report", {"id": 1}, {"body": "newer"})
        assert lease.claim.secret not in activity(watched)
        lease.release()
    assert "fence.present" in log(watched)
    assert "fence.present" in statistics(watched)
    for place in (log(watched), statistics(watched), activity(watched)):
        assert lease.claim.secret not in place


def test_a_child_process_leaves_its_parents_secret_nowhere(watched: Database) -> None:
    """Start-up options reach neither the log nor pg_stat_activity; the environment is the user's own."""
    child = "import os, psycopg; print(os.environ['PGOPTIONS']); psycopg.connect('').execute("
    child += "\"update public.report set body = 'child'\").connection.commit()"
    info = psycopg.conninfo.conninfo_to_dict(watched.url("app"))
    names = {"PGHOST": info["host"], "PGPORT": str(info["port"]), "PGUSER": "app", "PGDATABASE": info["dbname"]}
    done = subprocess.run(
        [PROGRAM, "run", "--resource", "report:1", "--", sys.executable, "-c", child],
        env={**names, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"fence\.claim=[0-9a-f]+:\d+:(\w+)", done.stdout)
    assert found is not None
    secret = found[1]
    assert watched.execute("select body from public.report") == [("child",)]
    for place in (log(watched), statistics(watched), activity(watched)):
        assert secret not in place
    assert secret not in done.stderr


def test_errors_show_no_secret_in_the_log(watched: Database) -> None:
    with pyfence.Fence(watched.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=30)
        claim = lease.claim
        with lease.transaction() as conn, pytest.raises(psycopg.DatabaseError):
            conn.execute("insert into public.report values (2, 'not mine')")
        wrong = pyfence.Claim(claim.resource, claim.token, "wrong-secret-of-mine")
        with psycopg.connect(watched.url("app")) as conn, pytest.raises(pyfence.UnknownLease):
            pyfence.present(conn, wrong)
        lease.release()
    text = log(watched)
    assert "LF005" in text or "no claim on 'report:2'" in text
    assert claim.secret not in text
    assert "wrong-secret-of-mine" not in text


def test_who_writes_a_secret_into_the_text_of_a_statement_is_read(watched: Database) -> None:
    """The same places, and they do show it: what the tests above look at is where a secret would be."""
    connection = watched.connect("app", autocommit=True)
    connection.execute("set fence.claim = '6161:1:written0by0hand'")
    ((query,),) = watched.execute(
        "select query from pg_stat_activity where pid = %s", (connection.info.backend_pid,), user=SUPERUSER
    )
    assert "written0by0hand" in query
    assert "written0by0hand" in log(watched)
    seen_by_others = watched.execute(
        "select query from pg_stat_activity where pid = %s", (connection.info.backend_pid,), user="outsider"
    )
    assert "written0by0hand" not in str(seen_by_others)
