"""What the pages for developers name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "developer").glob("*.md"))
#: A path in backticks that begins with one of our folders and has no placeholder.
NAMED = re.compile(r"`((?:sql|pyfence|tests|migrations|docs|bench)/[\w./-]*)`")
LINKED = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
#: The example of a revision that is not there yet.
FUTURE = re.compile(r"0002")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = re.sub(r"(?s)^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    named = [name for name in NAMED.findall(text) if not FUTURE.search(name)]
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in LINKED.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_page_on_architecture_names_enough_to_fail() -> None:
    assert len(NAMED.findall((ROOT / "docs" / "developer" / "architecture.md").read_text("utf-8"))) > 20
