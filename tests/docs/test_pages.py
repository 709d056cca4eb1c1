"""The code of the pages for developers runs as it stands, on a database set up the way each says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness import Database
from psycopg.conninfo import conninfo_to_dict

PAGES = Path(__file__).parents[2] / "docs" / "developer"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> str:
    """All the code of one language on a page."""
    found = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    return "\n".join(text for kind, text in found if kind == language)


def with_url(db: Database, code: str) -> str:
    """The page's URL, replaced by the test's."""
    info = conninfo_to_dict(db.url("app"))
    here = f"app@{info['host']}:{info['port']}/{info['dbname']}"
    assert "app@localhost/app" in code
    return code.replace("app@localhost/app", here)


def run(db: Database, page: str) -> None:
    """The page's SQL as the tables' owner, then its Python as the application."""
    with db.connect("app_owner", search_path="public") as owner:
        owner.execute(blocks(page, "sql").encode())
    subprocess.run([sys.executable, "-c", with_url(db, blocks(page, "python"))], check=True, timeout=60)


def test_sqlalchemy(db: Database) -> None:
    run(db, "sqlalchemy.md")
    rows = db.execute("select body, version from public.report order by id", user="outsider")
    assert rows == [("third", 3), ("old", 1)]
