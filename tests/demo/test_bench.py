"""The benchmark measures and reports; its figures are nobody's promise here."""

from __future__ import annotations

import json

import pytest
from harness import SUPERUSER, Database

from .conftest import Runner

#: As few transactions as still make a figure.
TINY = """
import dataclasses, pyfence.bench._groups as groups
groups.SINGLE_ROWS = 100
groups.QUICK = dataclasses.replace(groups.QUICK, transactions=5, durable_transactions=2, bulk_rounds=1, rounds=1)
"""
EXPECTED = [
    ("bulk UPDATE, 500 rows", "table scope", "cpu", 1.10),
    ("bulk UPDATE, 500 rows", "row scope, 10 claims", "cpu", 1.75),
    ("transaction of one row", "not durable", "cpu", 2.0),
    ("fenced_update()", "against an UPDATE", "cpu", None),
    ("acquire and release", "against an upsert", "cpu", None),
    ("transaction of one row", "durable", "wall", 1.3),
]


def test_json(runner: Runner) -> None:
    done = runner.run("bench", before=TINY, quick=True, json=True, rows=500)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert (document["rows"], document["quick"]) == (500, True)
    assert document["notes"] == []
    assert ["fsync off" in server for server in document["servers"]] == [True, False]
    assert set(document["machine"]) == {"system", "processor", "cpus"}
    results = document["results"]
    assert [tuple(r[key] for key in ("group", "variant", "measure", "target")) for r in results] == EXPECTED
    for result in results:
        assert result["unguarded"] > 0
        assert result["guarded"] > 0
        assert result["ratio_low"] <= result["ratio"] <= result["ratio_high"]
        assert result["within"] in ((None,) if result["target"] is None else (True, False))
    assert runner.left_running() == []
    assert runner.left_folders() == []


def test_a_given_database_is_left_as_it_was(db: Database, runner: Runner) -> None:
    db.execute(f"grant create on database {db.name} to app_owner", user="fence_owner")
    done = runner.run("bench", before=TINY, quick=True, rows=100, database_url=db.url("app_owner"))
    assert done.returncode == 0, done.stderr
    assert "fsync off: durable commits were not measured" in done.stdout
    assert db.execute("select to_regnamespace('pyfence_bench')") == [(None,)]
    assert db.execute("select count(*) from fence.protected_tables", user=SUPERUSER) == [(0,)]
    held = "select resource from fence._lease where secret_hash is not null"
    assert db.execute(held, user=SUPERUSER) == []


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"rows": 9}, 2, "at least 10"),
        ({"database_url": "postgresql://app:hush@127.0.0.1:1/x"}, 3, "cannot connect"),
    ],
)
def test_a_clear_error(runner: Runner, options: dict[str, object], code: int, words: str) -> None:
    done = runner.run("bench", **options)
    assert done.returncode == code
    assert words in done.stderr
    assert "hush" not in done.stderr
    assert "Traceback" not in done.stderr


def test_without_pyfence_there_is_a_remedy(empty_db: Database, runner: Runner) -> None:
    done = runner.run("bench", database_url=empty_db.url("fence_owner"))
    assert done.returncode == 3
    assert "pyfence migrate up" in done.stderr


def test_a_role_without_rights_gets_the_databases_answer(db: Database, runner: Runner) -> None:
    done = runner.run("bench", before=TINY, quick=True, database_url=db.url("app_owner"))
    assert done.returncode == 3
    assert "permission denied for database" in done.stderr
    assert "Traceback" not in done.stderr
