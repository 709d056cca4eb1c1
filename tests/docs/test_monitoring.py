"""The sample of docs/dba/monitoring.md that reads refusals from the server log, on a real log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from harness import Database

PAGE = Path(__file__).parents[2] / "docs" / "dba" / "monitoring.md"


def test_refusals_are_counted_from_the_server_log(db: Database) -> None:
    if not shutil.which("jq"):
        pytest.skip("there is no jq: the sample that counts refusals in the server log was not run")
    server = db.cluster.server
    log = Path(server.base_dir) / f"{server.name}.log"
    db.execute("create table public.logged (id int); select fence.protect('public.logged', 'logged')")
    for _ in range(2):
        with pytest.raises(psycopg.DatabaseError):
            db.execute("insert into public.logged values (1)", user="outsider")
    db.execute("select fence.set_mode('public.logged', 'observe')")
    db.execute("insert into public.logged values (1)", user="outsider")  # let pass: not counted

    (script,) = re.findall(r"(?s)^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", script], env={**os.environ, "LOG": str(log)}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines() if "public.logged" in line]
    assert lines == [["2", "LF004", "public.logged", "outsider"]]
