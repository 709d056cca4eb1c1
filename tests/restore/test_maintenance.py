"""Loading data into a guarded table as its owner: under the table's own lease, with every trigger on."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from guards.scene import acquire, contents, expire, protect, release, startup
from harness import Database, sqlstate, wait_until
from restore.dumps import dump, load, run, target, unarmed
from trees import forest


def script(lease: tuple[str, int, str], copy: str) -> str:
    """The documented script: psql variables keep the secret out of the file."""
    return f"begin;\nselect fence.present(:'resource', :token, :'secret');\n{copy}\ncommit;\n"


def variables(parameters: tuple[str, int, str]) -> list[str]:
    names = ("resource", "token", "secret")
    return [part for name, value in zip(names, parameters, strict=True) for part in ("-v", f"{name}={value}")]


@pytest.fixture
def loaded(db: Database) -> str:
    db.execute("create table public.big (id int primary key, body text)")
    db.execute("insert into public.big values (0, 'old')")
    protect(db, "public.big", "load:{@table}")
    return "public.big"


def copy_text(rows: int) -> str:
    lines = "".join(f"{number}\tnew\n" for number in range(1, rows + 1))
    return f"\\copy public.big from stdin\n{lines}\\."


def test_the_owner_loads_under_the_tables_lease(db: Database, loaded: str) -> None:
    lease = acquire(db, "load:big")
    before = forest.guard_triggers(db)
    base = ["-X", "-q", "-v", "ON_ERROR_STOP=1", db.url("app_owner")]
    done = run(db, "psql", *base, feed=copy_text(5))
    assert done.returncode == 3
    assert "without a claim" in done.stderr
    done = run(db, "psql", *variables(lease.parameters), *base, feed=script(lease.parameters, copy_text(5)))
    assert done.returncode == 0, done.stderr
    assert len(contents(db, loaded)) == 6
    assert forest.guard_triggers(db) == before
    assert unarmed(db) == []
    assert release(db, lease)
    done = run(db, "psql", *variables(lease.parameters), *base, feed=script(lease.parameters, "truncate public.big;"))
    assert done.returncode == 3
    assert len(contents(db, loaded)) == 6


def test_a_covering_lease_of_the_start_up_options_loads_many_resources(db: Database, loaded: str) -> None:
    """A program that cannot call anything, as the tables' owner: killed half-way first."""
    protect(db, loaded, "row:{id}", p_covering="all of big")
    lease, before, rows = acquire(db, "all of big"), forest.guard_triggers(db), contents(db, loaded)
    for end in ("killed", "committed"):
        job = db.connect("app_owner", options=startup(lease))
        with job.cursor() as cursor, cursor.copy("copy public.big from stdin") as copy:
            copy.write("".join(f"{number}\tnew\n" for number in range(1, 1001)))
        job.execute("update public.big set body = 'newer' where id > 500")
        if end == "killed":
            db.cluster.admin.execute("select pg_terminate_backend(%s, 10000)", (job.info.backend_pid,))
            assert contents(db, loaded) == rows
        else:
            job.commit()
            assert len(contents(db, loaded)) == 1001
        assert forest.guard_triggers(db) == before
        assert unarmed(db) == []
        with sqlstate("LF004"):
            db.execute("insert into public.big values (2000)")


def test_a_load_killed_midway_leaves_guards_and_rows_as_they_were(db: Database, loaded: str) -> None:
    lease = acquire(db, "load:big")
    before, rows = forest.guard_triggers(db), contents(db, loaded)
    path = db.cluster.server.programs.path("psql")
    if not Path(path).is_file():
        pytest.skip("there is no psql beside the server")
    command = [path, "-X", "-q", "-v", "ON_ERROR_STOP=1", *variables(lease.parameters), db.url("app_owner")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    text = script(lease.parameters, copy_text(50_000)).encode()
    process.stdin.write(text[: len(text) // 2])  # the server has rows, psql waits for more
    process.stdin.flush()
    query = "select count(*) from pg_stat_progress_copy where datname = %s and tuples_processed > 0"

    def copying() -> bool:
        ((count,),) = db.execute(query, (db.name,), user="postgres")
        return bool(count)

    wait_until(copying, "psql copies")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()

    def gone() -> bool:
        return not db.execute("select pid from pg_stat_progress_copy where datname = %s", (db.name,), user="postgres")

    wait_until(gone, "its backend has ended")
    assert contents(db, loaded) == rows
    assert forest.guard_triggers(db) == before
    assert unarmed(db) == []
    with sqlstate("LF004"):
        db.execute("insert into public.big values (1)")
    expire(db, "load:big")
    lease = acquire(db, "load:big")  # the next one gets in, and finishes the job
    done = run(
        db,
        "psql",
        *command[1:5],
        *variables(lease.parameters),
        command[-1],
        feed=script(lease.parameters, copy_text(9)),
    )
    assert done.returncode == 0, done.stderr
    assert len(contents(db, loaded)) == 10


def test_a_data_only_dump_is_loaded_table_by_table(db: Database, loaded: str) -> None:
    """The dump's own COPY, between the claim and the commit."""
    data = dump(db, "--data-only", "-t", "public.big")
    with target(db) as other:
        load(other, dump(db, "--schema-only"))
        load(other, dump(db, "--data-only", "-n", "fence"), user="fence_owner")
        lease = acquire(other, "load:big")
        arguments = ["-X", "-q", "-v", "ON_ERROR_STOP=1", *variables(lease.parameters), other.url("app_owner")]
        done = run(other, "psql", *arguments, feed=script(lease.parameters, data))
        assert done.returncode == 0, done.stderr
        assert contents(other, "public.big") == [(0, "old")]
        assert unarmed(other) == []


def test_the_secret_is_in_no_output(db: Database, loaded: str) -> None:
    lease = acquire(db, "load:big")
    arguments = ["-X", "-v", "ON_ERROR_STOP=1", *variables(lease.parameters), db.url("app_owner")]
    done = run(db, "psql", *arguments, feed=script(lease.parameters, "select 1/0;"))
    assert done.returncode == 3
    assert not re.search(lease.secret, done.stdout + done.stderr)


def test_rows_of_many_resources_are_loaded_under_many_claims(db: Database) -> None:
    """Row scope: every resource that the file has; present_all takes them in one call."""
    forest.plant(db)
    leases = forest.tenants(db)
    connection = db.connect("app_owner")
    arrays = [[lease.parameters[part] for lease in leases.values()] for part in range(3)]
    connection.execute("select fence.present_all(%s, %s, %s)", arrays)
    with connection.cursor() as cursor, cursor.copy("copy public.t (id, tenant, day) from stdin") as copy:
        for number in range(30):
            copy.write_row((100 + number, "abc"[number % 3], f"2026-0{1 + number % 3}-11"))
    connection.commit()
    assert len(forest.whereabouts(db)) == 39
    with pytest.raises(psycopg.DatabaseError):
        connection.execute("copy public.t (id) from stdin")
