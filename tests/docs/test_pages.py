"""The code of the pages for developers runs as it stands, on a database set up the way each says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from harness import SUPERUSER, Database
from psycopg.conninfo import conninfo_to_dict

PAGES = Path(__file__).parents[2] / "docs" / "developer"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> str:
    """All the code of one language on a page."""
    return "\n".join(listed(page, language))


def listed(page: str, language: str) -> list[str]:
    """The same, block by block."""
    found = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    return [text for kind, text in found if kind == language]


def with_url(db: Database, code: str) -> str:
    """The page's URL, replaced by the test's."""
    info = conninfo_to_dict(db.url("app"))
    here = f"app@{info['host']}:{info['port']}/{info['dbname']}"
    assert "app@localhost/app" in code
    return code.replace("app@localhost/app", here)


def run(db: Database, page: str) -> None:
    """The page's SQL as the tables' owner, then its Python as the application."""
    if statements := blocks(page, "sql"):
        with db.connect("app_owner", search_path="public") as owner:
            owner.execute(statements.encode())
    subprocess.run([sys.executable, "-c", with_url(db, blocks(page, "python"))], check=True, timeout=60)


def test_sqlalchemy(db: Database) -> None:
    run(db, "sqlalchemy.md")
    rows = db.execute("select body, version from public.report order by id", user="outsider")
    assert rows == [("third", 3), ("old", 1)]


def test_asyncio(db: Database) -> None:
    run(db, "async.md")
    assert db.execute("select body from public.report order by id") == [("NEW!",), ("mine!",)]


def test_lifecycles(db: Database) -> None:
    run(db, "lifecycles.md")
    assert db.execute("select body from public.report order by id") == [("from the parent",), ("from the child",)]
    assert db.execute("select distinct state from fence.leases") == [("closed",)]


MAKO = """
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = "fence_0001"

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
"""


def test_alembic(empty_db: Database, tmp_path: Path) -> None:
    """The page's env.py, models, operations and ini file are an application, over the schema as a branch."""
    env, models, generated, by_hand = listed("alembic.md", "python")
    (ini,) = listed("alembic.md", "ini")
    (tmp_path / "migrations" / "versions").mkdir(parents=True)
    (tmp_path / "migrations" / "env.py").write_text(env)
    (tmp_path / "migrations" / "script.py.mako").write_text(MAKO)
    (tmp_path / "models.py").write_text(models)
    url = empty_db.url("fence_owner").replace("postgresql://", "postgresql+psycopg://")
    (tmp_path / "alembic.ini").write_text(f"{ini}prepend_sys_path = .\nsqlalchemy.url = {url}\n")

    body = "\n".join(f"    {line}" for line in by_hand.splitlines())
    head = "from alembic import op\nrevision = 'second'\ndown_revision = 'first'\n\ndef upgrade():\n"
    commands = [
        ["upgrade", "fence@head"],
        ["revision", "--autogenerate", "--head", "base", "--version-path", "migrations/versions", "--rev-id", "first"],
        ["upgrade", "heads"],
        ["check"],
    ]
    program = f"""
import pathlib
from alembic.config import main
for command in {commands!r}:
    main(argv=command)
pathlib.Path("migrations/versions/second.py").write_text({head + body!r})
main(argv=["upgrade", "heads"])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    first = next((tmp_path / "migrations" / "versions").glob("first*")).read_text()
    assert generated.strip() in first.replace("'", '"')
    assert "No new upgrade operations" in done.stdout
    assert empty_db.execute("select from fence.protected_tables", user="fence_owner") == []


def test_pytest(empty_db: Database, tmp_path: Path) -> None:
    """The page's conftest.py and test module."""
    conftest, tests = listed("pytest.md", "python")
    (tmp_path / "conftest.py").write_text(with_url(empty_db, conftest).replace("app@", f"{SUPERUSER}@", 1))
    (tmp_path / "test_report.py").write_text(tests)
    known = entry_points(group="pytest11", name="pyfence")
    plugin = [] if known else ["-p", "pyfence._pytest_plugin"]  # an environment of before the entry point
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_telemetry(db: Database) -> None:
    run(db, "telemetry.md")
