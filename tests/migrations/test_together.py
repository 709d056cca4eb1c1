"""Many upgrades at once, upgrades that are killed, and the one lock that all of them share."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from harness import SUPERUSER, Connection, Database, wait_until
from migrations.catalog import differences

from pyfence import _resources, migrate

from .conftest import catalog

UP = "import sys; from pyfence import migrate; migrate.up(sys.argv[1])"
LOCK = int(re.findall(r"pg_advisory_xact_lock\((\d+)\)", (_resources.migrations_dir() / "prelude.sql").read_text())[0])
BARRIER = 4711


def start_up(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", UP, url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def waiting(database: Database, key: int) -> list[int]:
    """The backends of the database that wait for an advisory lock."""
    rows = database.cluster.admin.execute(
        """
        select l.pid from pg_locks l join pg_database d on d.oid = l.database
         where d.datname = %s and l.locktype = 'advisory' and not l.granted
           and (l.classid::bigint << 32) | l.objid::bigint = %s
        """,
        (database.name, key),
    ).fetchall()
    return [pid for (pid,) in rows]


@pytest.fixture
def witness(empty_db: Database) -> Connection:
    """A superuser's connection; every DDL command is written down, and waits before it creates a view if asked to."""
    connection = empty_db.connect(SUPERUSER, autocommit=True)
    connection.execute(
        f"""
        create table public.ddl (tag text, object text, pid integer);
        create function public.note() returns event_trigger language plpgsql security definer as $$
        begin
          insert into public.ddl
          select command_tag, object_identity, pg_backend_pid() from pg_event_trigger_ddl_commands();
          if tg_tag = 'CREATE VIEW' then
            perform pg_advisory_xact_lock_shared({BARRIER});
          end if;
        end $$;
        create event trigger note on ddl_command_end execute function public.note();
        """,
        prepare=False,
    )
    return connection


@pytest.mark.parametrize("start", ["base", pytest.param("head", marks=pytest.mark.full)])
def test_eight_upgrades_at_once(empty_db: Database, other_db: Database, witness: Connection, start: str) -> None:
    url = empty_db.url("fence_owner")
    if start == "head":
        migrate.up(url)
    with witness.transaction():
        witness.execute("select pg_advisory_xact_lock(%s)", (LOCK,))
        processes = [start_up(url) for _ in range(8)]
        wait_until(lambda: len(waiting(empty_db, LOCK)) == 8, "eight upgrades wait", deadline=60)
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, outputs
    assert outputs == [""] * 8

    repeated = witness.execute(
        "select tag, object, count(*) from public.ddl where tag like 'CREATE %' group by 1, 2 having count(*) > 1"
    ).fetchall()
    assert repeated == []
    installers = witness.execute("select count(distinct pid) from public.ddl where tag = 'CREATE TABLE'").fetchall()
    assert installers == [(1,)]
    witness.execute("drop event trigger note")
    migrate.up(other_db.url("fence_owner"))
    assert differences(catalog(empty_db), catalog(other_db)) == []


def test_threads_of_one_process(empty_db: Database, other_db: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        targets = [database.url("fence_owner") for database in (empty_db, other_db)] * 2
        assert list(pool.map(migrate.up, targets)) == [None] * 4
    assert differences(catalog(empty_db), catalog(other_db)) == []


def test_a_killed_upgrade_leaves_nothing(empty_db: Database, witness: Connection) -> None:
    url = empty_db.url("fence_owner")
    with witness.transaction():
        witness.execute("select pg_advisory_xact_lock(%s)", (BARRIER,))
        process = start_up(url)
        wait_until(lambda: len(waiting(empty_db, BARRIER)) == 1, "the upgrade is half-way", deadline=60)
        [backend] = waiting(empty_db, BARRIER)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        follower = start_up(url)  # waits for the lock of the dead one's transaction, then does it all
        wait_until(lambda: len(waiting(empty_db, LOCK)) == 1, "the next upgrade waits", deadline=60)
        assert witness.execute("select to_regnamespace('fence')").fetchone() == (None,)
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0, output
    installers = witness.execute("select distinct pid from public.ddl where tag = 'CREATE TABLE'").fetchall()
    assert len(installers) == 1
    assert (backend,) not in installers
    assert migrate.check(url) == migrate.head()


def test_a_killed_upgrade_alone_leaves_nothing(empty_db: Database, witness: Connection) -> None:
    with witness.transaction():
        witness.execute("select pg_advisory_xact_lock(%s)", (BARRIER,))
        process = start_up(empty_db.url("fence_owner"))
        wait_until(lambda: len(waiting(empty_db, BARRIER)) == 1, "the upgrade is half-way", deadline=60)
        [backend] = waiting(empty_db, BARRIER)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    gone = "select from pg_stat_activity where pid = %s"
    wait_until(lambda: not witness.execute(gone, (backend,)).fetchall(), "the dead upgrade's backend has ended")
    assert catalog(empty_db) == {}
    assert witness.execute("select count(*) from public.ddl").fetchone() == (0,)


def test_a_killed_downgrade_leaves_everything(db: Database) -> None:
    before = catalog(db)
    db.execute("select from fence.acquire('r')", user="fence_owner")
    with db.connect("fence_owner") as holder:
        holder.execute("select from fence._lease for share")
        down = UP.replace("up", "down")
        process = subprocess.Popen([sys.executable, "-c", down, db.url("fence_owner")], stderr=subprocess.PIPE)
        blocked = "select pid from pg_locks l where not granted and relation = 'fence._lease'::regclass"
        wait_until(lambda: len(db.execute(blocked, user=SUPERUSER)) == 1, "the downgrade waits", deadline=60)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        [(backend,)] = db.execute(blocked, user=SUPERUSER)
    gone = "select from pg_stat_activity where pid = %s"
    wait_until(lambda: not db.execute(gone, (backend,), user=SUPERUSER), "the dead downgrade's backend has ended")
    assert differences(before, catalog(db)) == []


def test_no_lock_outlives_its_transaction(empty_db: Database) -> None:
    with psycopg.connect(empty_db.url("fence_owner"), autocommit=True) as connection:
        for call in (migrate.up, migrate.up, migrate.check, migrate.down, migrate.up, migrate.stamp):
            call(connection)
            held = connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
            assert held == (0,)


def test_no_session_level_lock_anywhere() -> None:
    package = Path(migrate.__file__).parent
    files = [
        path
        for directory in (package, _resources.sql_dir(), _resources.migrations_dir())
        for path in directory.rglob("*")
        if path.suffix in (".py", ".sql", ".mako")
    ]
    assert len(files) > 50
    session = re.compile(r"pg_(try_)?advisory_(lock|unlock)")
    assert [str(path) for path in files if session.search(path.read_text("utf-8"))] == []
    assert session.search("select pg_advisory_lock(1)")
    assert session.search("select pg_try_advisory_lock_shared(1)")
    assert not session.search("select pg_advisory_xact_lock(1)")
