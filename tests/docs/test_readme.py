"""The README's code runs as it stands, in its order, on a database set up the way it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from harness import Database
from psycopg import sql

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Every code block: language and text."""
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def run_sql(connection: psycopg.Connection, text: str) -> None:
    """Statement by statement, as psql would; `:token` and `:'secret'` stand for the last answer's columns."""
    known: dict[str, object] = {}
    for statement in text.split(";\n"):
        filled = re.sub(
            r":'?(token|secret)'?", lambda match: sql.Literal(known[match[1]]).as_string(connection), statement
        )
        if not filled.strip():
            continue
        cursor = connection.execute(filled)
        if cursor.description and (row := cursor.fetchone()):
            known.update(zip((column.name for column in cursor.description), row, strict=True))


def test_the_code_runs_as_it_stands(db: Database) -> None:
    owner, app = db.connect("app_owner", autocommit=True), db.connect("app", autocommit=True)
    for connection in (owner, app):
        connection.execute("set search_path = public")
    ran = []
    for language, text in blocks():
        if language == "sql":
            run_sql(owner if "protect" in text else app, text)
        elif language == "python":
            code = text.replace("postgresql://app@localhost/app", db.url("app"))
            assert code != text, "the README's URL is not where this test expects it"
            subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
            assert db.execute("select body from public.report") == [("new!",)]
        ran.append(language)
    assert ran.count("sql") >= 2
    assert ran.count("python") == 1
    assert db.execute("select body from public.report") == [("from psql",)]
    assert db.execute("select state from fence.leases") == [("closed",)]


def test_the_legacy_jobs_error_is_the_one_shown(db: Database) -> None:
    db.execute("create table public.report (id bigint primary key, body text not null)")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    shown = next(text for language, text in blocks() if language == "text")
    with pytest.raises(psycopg.DatabaseError) as refused:
        db.execute("update public.report set body = 'legacy'", user="outsider")
    diag = refused.value.diag
    assert shown == f"ERROR:  {diag.message_primary}\nDETAIL:  {diag.message_detail}\nHINT:  {diag.message_hint}\n"


def test_every_error_the_readme_names_has_that_class() -> None:
    from pyfence import errors

    rows = re.findall(r"^\| (LF\d{3}) \| `(\w+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    for code, name in rows:
        assert getattr(errors, name).sqlstate == code
