"""The pages for owners of legacy jobs: every block runs as it stands, in its order, as whom its first line says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from harness import Database
from psycopg.conninfo import conninfo_to_dict

PAGES = Path(__file__).parents[2] / "docs" / "legacy-jobs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHO = re.compile(r"^(?:--|#) as (\w+)(?:, refused with (\w+))?\n")
LINKED = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")

#: The pages' roles, by those of the tests.
ROLES = {"batch": "app", "vendor": "outsider"}
LOGINS = re.compile(r"\b(batch|vendor)\b(?!er)")


class Reader:
    """Somebody who follows a page to the letter."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder
        (folder / "import.sql").write_text("select 1;\n")

    def sql(self, who: str, text: str, code: str | None) -> None:
        found = None
        try:
            self.db.connect(who, autocommit=True, search_path="public").execute(text.encode())
        except psycopg.DatabaseError as exc:
            found = exc.sqlstate
        assert found == code, text

    def run(self, who: str, arguments: list[str]) -> None:
        info = conninfo_to_dict(self.db.url(who))
        names = {f"PG{name.upper()}": str(info[name]) for name in ("host", "port", "user")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, **names, "PGDATABASE": str(info["dbname"]), "PATH": path}
        done = subprocess.run(arguments, env=env, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"

    def read(self, page: str) -> list[str]:
        """Runs the page's blocks; gives the texts that it shows."""
        shown = []
        for language, text in BLOCK.findall((PAGES / page).read_text(encoding="utf-8")):
            if language == "text":
                shown.append(text)
                continue
            said = WHO.match(text)
            if said is None:
                pytest.fail(f"{page} does not say who runs\n{text}")
            who = ROLES.get(said[1], said[1])
            code = LOGINS.sub(lambda found: ROLES[found[1]], text.removeprefix(said[0]))
            if language == "sql":
                self.sql(who, code, said[2])
            elif language == "python":
                here = conninfo_to_dict(self.db.url(who))
                there = f"{who}@{here['host']}:{here['port']}/{here['dbname']}"
                self.run(who, [sys.executable, "-c", code.replace(f"{who}@localhost/app", there)])
            else:
                self.run(who, ["sh", "-ec", code])
        return shown


needs_psql = pytest.mark.skipif(shutil.which("psql") is None, reason="no psql: the pages' shell commands were not run")


@pytest.fixture
def reader(db: Database, tmp_path: Path) -> Reader:
    return Reader(db, tmp_path)


@needs_psql
def test_index(reader: Reader, db: Database) -> None:
    (reader.folder / "import.sql").write_text("insert into ledger (day, amount) values ('2026-12-01', 160);\n")
    (shown,) = reader.read("index.md")
    assert db.execute("select sum(amount) from public.ledger") == [(10 + 20 + 40 + 80 + 160,)]
    seen = db.execute("select role, exempt, count from fence.violations where code = 'LF004' order by exempt")
    assert seen == [("outsider", False, 1), ("outsider", True, 1)]
    with pytest.raises(psycopg.DatabaseError) as refused:
        db.execute("insert into public.ledger (day, amount) values ('2026-12-02', 1)", user="outsider")
    diag = refused.value.diag
    assert shown == f"ERROR:  {diag.message_primary}\nDETAIL:  {diag.message_detail}\n"


@needs_psql
def test_rollout(reader: Reader, db: Database) -> None:
    (reader.folder / "import.sql").write_text("update invoice set state = 'imported' where id = 1;\n")
    reader.read("rollout.md")
    rows = db.execute("select state from public.invoice order by id")
    assert rows == [("imported",), ("sent",), ("closed",), ("sent",)]
    assert db.execute("select distinct mode from fence.protected_tables") == [("enforce",)]
    assert db.execute("select customer from public.note order by id") == [(3,), (4,), (5,), (6,)]


@needs_psql
def test_run(reader: Reader, db: Database) -> None:
    (reader.folder / "nightly.sql").write_text("select 1;\n")
    nightly = reader.folder / "nightly.sh"
    nightly.write_text('#!/bin/sh\necho "$PYFENCE_RESOURCE" >> ran\n')
    nightly.chmod(0o755)
    reader.read("run.md")
    assert (reader.folder / "ran").read_text() == "nightly\n"
    events = db.execute("select event from fence.history where resource = 'nightly' order by id")
    assert [event for (event,) in events] == ["granted", "closed", "granted", "finished", "closed"]


@needs_psql
def test_drivers(reader: Reader, db: Database) -> None:
    db.execute("create table public.made (id int)")
    db.execute("select fence.protect('public.made', 'nightly')")
    (reader.folder / "nightly.sql").write_text("insert into public.made values (1);\n")
    reader.read("drivers.md")
    assert db.execute("select id from public.made") == [(1,)]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for name, anchor in LINKED.findall(page.read_text(encoding="utf-8")) + [
        ("", anchor) for anchor in re.findall(r"\]\((#[^)]*)\)", page.read_text(encoding="utf-8"))
    ]:
        target = page.parent / name if name else page
        assert target.exists(), name
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, anchor
