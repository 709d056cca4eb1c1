"""Programs and drivers under `pyfence run`, for real: which take the claim from PGOPTIONS, and what the others need.

`make drivers` runs these; what is not installed is skipped. Node's and Python's drivers are looked for where NODE_PATH
and PYFENCE_DRIVERS_PYTHON say. The rows of docs/legacy-jobs/drivers.md are what is tested here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Database
from run.runner import Runner

pytestmark = pytest.mark.drivers

PAGE = Path(__file__).parents[2] / "docs" / "legacy-jobs" / "drivers.md"
PYTHON = os.environ.get("PYFENCE_DRIVERS_PYTHON", sys.executable)
WRITE = "update public.report set body = $$new$$ where id = 1"

_PERL = f'use DBI; my $d = DBI->connect("dbi:Pg:", "", "", {{RaiseError => 1}}); $d->do(q{{{WRITE}}});'
_NODE_PG = f"""
const {{ Client }} = require('pg');
(async () => {{ const c = new Client(); await c.connect(); await c.query('{WRITE}'); await c.end(); }})()
  .catch(e => {{ console.error(e.code); process.exit(9); }});
"""
_POSTGRES_JS = f"""
const sql = require('postgres')({{ OPTIONS }});
sql.unsafe('{WRITE}').then(() => sql.end()).catch(e => {{ console.error(e.code); process.exit(9); }});
"""
_PSYCOPG = f"""
import psycopg
with psycopg.connect() as conn:
    conn.execute("{WRITE}")
"""
_PSYCOPG2 = f"""
import psycopg2
conn = psycopg2.connect("")
conn.cursor().execute("{WRITE}")
conn.commit()
"""
_ASYNCPG = f"""
import asyncio, asyncpg, os, sys
async def main():
    conn = await asyncpg.connect(OPTIONS)
    await conn.execute("{WRITE}")
try:
    asyncio.run(main())
except asyncpg.PostgresError as exc:
    sys.exit(exc.sqlstate)
"""
_PG8000 = f"""
import os, pg8000.native
env = os.environ
where = {{"host": env["PGHOST"], "port": int(env["PGPORT"]), "database": env["PGDATABASE"]}}
conn = pg8000.native.Connection(env["PGUSER"], **whereOPTIONS)
conn.run("{WRITE}")
"""

_JDBC = f"""
import java.sql.*;
import java.util.*;
class Job {{
  public static void main(String[] args) throws SQLException {{
    Map<String, String> env = System.getenv();
    Properties more = new Properties();
    more.setProperty("user", env.get("PGUSER"));
    OPTIONS
    String url = "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE");
    try (Connection conn = DriverManager.getConnection(url, more)) {{
      conn.createStatement().executeUpdate("{WRITE}");
    }} catch (SQLException e) {{
      System.err.println(e.getSQLState());
      System.exit(9);
    }}
  }}
}}
"""
JDBC = os.environ.get("PYFENCE_JDBC_JAR", "/usr/share/java/postgresql.jar")

#: Name on the page -> the command; and, for those that do not read PGOPTIONS, what is put for OPTIONS to pass it on.
PROGRAMS: dict[str, tuple[list[str], str | None]] = {
    "psql": (["psql", "-Xqc", WRITE], None),
    "pgbench": (["pgbench", "-n", "-t", "3", "-c", "2", "-f", "SCRIPT"], None),
    "pg_restore": (["pg_restore", "--data-only", "--exit-on-error", "-d", "DATABASE", "DUMP"], None),
    "psycopg 3": ([PYTHON, "-c", _PSYCOPG], None),
    "psycopg2": ([PYTHON, "-c", _PSYCOPG2], None),
    "Perl DBD::Pg": (["perl", "-e", _PERL], None),
    "node-postgres": (["node", "-e", _NODE_PG], None),
    "postgres.js": (["node", "-e", _POSTGRES_JS], "connection: { options: process.env.PGOPTIONS }"),
    "asyncpg": ([PYTHON, "-c", _ASYNCPG], 'server_settings={"options": os.environ["PGOPTIONS"]}'),
    "pg8000": ([PYTHON, "-c", _PG8000], ', startup_params={"options": env["PGOPTIONS"]}'),
    "JDBC": (
        ["java", "-cp", JDBC, "PROGRAM", _JDBC],
        'more.setProperty("options", env.get("PGOPTIONS"));',
    ),
}
_IS_THERE = {
    "JDBC": ["test", "-e", JDBC],
    "Perl DBD::Pg": ["perl", "-MDBD::Pg", "-e", "1"],
    "node-postgres": ["node", "-e", "require('pg')"],
    "postgres.js": ["node", "-e", "require('postgres')"],
    "psycopg 3": [PYTHON, "-c", "import psycopg"],
    "psycopg2": [PYTHON, "-c", "import psycopg2"],
    "asyncpg": [PYTHON, "-c", "import asyncpg"],
    "pg8000": [PYTHON, "-c", "import pg8000.native"],
}


def require(name: str) -> None:
    program = PROGRAMS[name][0][0]
    there = _IS_THERE.get(name)
    if shutil.which(program) is None or (
        there is not None and subprocess.run(there, capture_output=True, timeout=60).returncode != 0
    ):
        pytest.skip(f"{name} is not installed: it was not tried under pyfence run")


def body(db: Database) -> list[tuple[str, ...]]:
    return [tuple(row) for row in db.execute("select body from public.report order by id")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_under_run(run: Runner, tmp_path: Path, name: str) -> None:
    require(name)
    command, passed_on = PROGRAMS[name]
    script, dump = tmp_path / "script.sql", tmp_path / "dump"
    script.write_text(f"begin;\n{WRITE};\ncommit;\n")
    if name == "pg_restore":
        made = ["pg_dump", "--data-only", "-Fc", "-t", "public.report", "-f", str(dump), run.variables["PGDATABASE"]]
        done = subprocess.run(made, env={**os.environ, **run.variables}, capture_output=True, text=True, timeout=60)
        if "server version mismatch" in done.stderr:
            pytest.skip("pg_dump is older than the tests' server: pg_restore was not tried under pyfence run")
        assert done.returncode == 0, done.stderr
        run.db.execute("alter table public.report disable trigger user", user="app_owner")
        run.db.execute("delete from public.report", user="app_owner")
        run.db.execute("select fence.repair('public.report')")
    names = {"SCRIPT": str(script), "DUMP": str(dump), "DATABASE": run.variables["PGDATABASE"]}
    command = [names.get(word, word) for word in command]
    ignoring = [word.replace("OPTIONS", "") if "$$new$$" in word else word for word in command]
    if "PROGRAM" in command:  # Java reads a program from a file only
        program = tmp_path / "Job.java"
        program.write_text(ignoring.pop())
        ignoring = [word.replace("PROGRAM", str(program)) for word in ignoring]
    before = body(run.db)

    alone = subprocess.run(
        ignoring, env={**os.environ, **run.variables}, capture_output=True, text=True, timeout=60, check=False
    )
    assert alone.returncode != 0
    assert body(run.db) == before
    if passed_on is not None:
        refused = run.popen(command=ignoring)
        _, errors = refused.communicate(timeout=60)
        assert refused.returncode != 0
        assert "LF004" in errors
        assert body(run.db) == before
        command = [word.replace("OPTIONS", passed_on, 1) if "$$new$$" in word else word for word in command]
        if "PROGRAM" in command:
            program.write_text(command.pop())
            command = [word.replace("PROGRAM", str(program)) for word in command]
    run(command=command)
    assert body(run.db) == ([("old",)] if name == "pg_restore" else [("new",)])


def test_the_page_says_what_is_tested() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| (works|refused) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {name: "works" if given is None else "refused" for name, (_, given) in PROGRAMS.items()}
