#!/usr/bin/env python3
"""What thousands of protected tables cost: `protect --all`, `migrate up`, `doctor`, `status`, size of the catalog.

    .venv/bin/python bench/tables.py > bench/results/<date>-<commit>-tables.json
    .venv/bin/python bench/tables.py --tables 200 1000      # fewer

A server of its own in memory, without fsync. Two figures each, in seconds: wall time of the installed program with its
start, and processor time of the program and its backend together, which a busy machine changes little. One run each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from pyfence import _server

PROGRAM = str(Path(sys.executable).with_name("pyfence"))
SETTINGS: dict[str, str | int | bool] = {"fsync": False, "max_locks_per_transaction": 1024, "shared_buffers": "256MB"}
_SIZE = """\
select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r'"""
_OBJECTS = "select (select count(*) from pg_trigger), (select count(*) from pg_proc where proname ~ '^_guard_')"


def program(server: _server.Server, url: str, *arguments: str) -> dict[str, float]:
    """Seconds that a command takes, by the clock and on processors."""
    env = {**os.environ, "PYFENCE_DATABASE_URL": url}
    begun, before = time.monotonic(), processors(server)
    subprocess.run(
        [PROGRAM, *arguments, "--timeout", "5000"],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall = time.monotonic() - begun
    time.sleep(0.5)  # until the postmaster has counted the backend that has just ended
    found = {"wall": round(wall, 2), "cpu": round(processors(server) - before, 2)}
    print(f"  {' '.join(arguments[:2])}: {found}", file=sys.stderr, flush=True)
    return found


def processors(server: _server.Server) -> float:
    """Seconds on processors of this process's children and the server's, those that have ended (Linux)."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    ours = os.times()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return ended + ours.children_user + ours.children_system


def measure(server: _server.Server, count: int) -> dict[str, Any]:
    """One database with so many tables, each with a primary key."""
    name = f"tables_{count}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    url = server.url(name)
    print(f"{count} tables ...", file=sys.stderr, flush=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "do $$ begin for i in 1.." + str(count) + " loop"
            " execute format('create table t%s (id bigint primary key, tenant int not null, body text)', i);"
            " end loop; end $$"
        )
        found: dict[str, Any] = {"tables": count, "migrate up": program(server, url, "migrate", "up")}
        before = connection.execute(_SIZE).fetchall()[0][0]
        template = ("--schema", "public", "--resource-template", "{@table}:{@key}")
        found["protect --all, the plan alone"] = program(server, url, "protect", "--all", *template)
        found["protect --all"] = program(server, url, "protect", "--all", *template, "--yes")
        found["protect --all, nothing to change"] = program(server, url, "protect", "--all", *template)
        found["migrate up, nothing to do"] = program(server, url, "migrate", "up")
        found["doctor"] = program(server, url, "doctor")
        found["status without the doctor"] = program(server, url, "status", "--no-doctor")
        size = connection.execute(_SIZE).fetchall()[0][0] - before
        triggers, functions = connection.execute(_OBJECTS).fetchall()[0]
        found |= {"catalog bytes": size, "catalog bytes a table": size // count}
        found |= {"triggers": triggers, "guard functions": functions}
        found["uninstall --unprotect"] = program(server, url, "uninstall", "--unprotect", "--yes")
    return found


def main() -> None:
    """Measure each number of tables and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, nargs="+", default=[100, 1000, 5000])
    options = parser.parse_args()
    results = []
    with _server.Server(settings=SETTINGS) as server:
        for count in options.tables:
            results.append(measure(server, count))
            document = {"postgresql": server.version, "cores": os.cpu_count(), "load": os.getloadavg(), "runs": results}
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
