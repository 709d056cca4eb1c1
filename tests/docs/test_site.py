"""The pages as a site: all of them are in it, the generated one is current, and nothing is loaded from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from harness import Database
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_on_sql_is_what_the_catalog_says(db: Database) -> None:
    spec = importlib.util.spec_from_file_location("sql_api", DOCS / "sql_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with db.connect("fence_owner") as owner:
        page = module.page(owner)
    assert page == module.PAGE.read_text("utf-8"), "run: python3 dev.py sql-api"
    assert "None" not in page  # everything public has a comment


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    named = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    there = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(named) == there


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?s)^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed (make docs installs it): that the site builds was not looked at")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>", text), page
    for style in tmp_path.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")), style


def test_the_quickstart(empty_db: Database) -> None:
    """Block by block, each as whom the page says; the roles are there already, and may what the page says they may."""
    found = BLOCK.findall((DOCS / "quickstart.md").read_text("utf-8"))
    roles, install, protect, refused, error, python, look = found
    assert [kind for kind, _ in found] == ["sql", "sh", "sql", "sql", "text", "python", "sh"]
    assert set(re.findall(r"create role (\w+)", roles[1])) == {"fence_owner", "app_owner", "app"}
    shell(empty_db, install[1], "fence_owner")
    empty_db.connect("app_owner", autocommit=True, search_path="public").execute(protect[1].encode())
    with pytest.raises(psycopg.DatabaseError) as caught:
        empty_db.connect("app", autocommit=True, search_path="public").execute(refused[1].encode())
    assert str(caught.value).splitlines()[0] in error[1]
    info = conninfo_to_dict(empty_db.url("app"))
    code = python[1].replace("app@localhost/app", f"app@{info['host']}:{info['port']}/{info['dbname']}")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert empty_db.execute("select body from public.report") == [("new",)]
    assert "released" in shell(empty_db, look[1].replace("pyfence doctor", ""), "app_owner")


def shell(db: Database, script: str, user: str) -> str:
    """Run a block of shell, as one of the roles."""
    folder = Path(sys.executable).parent
    env = {"PATH": f"{folder}:/usr/bin:/bin", "PYFENCE_DATABASE_URL": db.url(user), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
