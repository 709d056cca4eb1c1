"""docs/errors.md has a section for every code that the SQL can raise or the client knows, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pyfence import _resources, errors

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def raised() -> set[str]:
    """The codes in the SQL, comments left out."""
    text = "\n".join(
        line.split("--")[0]
        for path in _resources.sql_files(_resources.sql_dir())
        for line in path.read_text("utf-8").splitlines()
        if "comment on" not in line
    )
    return set(re.findall(r"'(LF[0-9]{3})'", text))


def sections() -> dict[str, str]:
    parts = re.split(r"^## (LF[0-9]{3})\b", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_code_has_its_section() -> None:
    known = set(errors._CLASSES)
    assert raised() <= known
    assert set(sections()) == known
    assert list(sections()) == sorted(known)


def test_every_section_says_what_to_do() -> None:
    for code, text in sections().items():
        assert f"`{errors._CLASSES[code].__name__}`" in text, code
        for part in ("**Cause.**", "**What the refused one sees.**", "**Remedy.**"):
            assert part in text, (code, part)
