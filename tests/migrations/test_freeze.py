"""Frozen files: verbatim copies of sql/ while a revision is unreleased, and never touched again afterwards."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pyfence import _resources

FREEZE = _resources.migrations_dir() / "freeze.py"


@pytest.fixture
def freeze() -> ModuleType:
    """The freezing module, loaded from its file."""
    spec = importlib.util.spec_from_file_location("freeze", FREEZE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two files of SQL."""
    directory = tmp_path / "sql"
    (directory / "20_functions").mkdir(parents=True)
    (directory / "00_schema.sql").write_bytes(b"create table fence._t ();\n")
    (directory / "20_functions" / "f.sql").write_bytes(b"create function fence.f() returns text as $$ 100% :x $$;\r\n")
    return directory


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """An empty frozen directory with one revision in it."""
    directory = tmp_path / "frozen"
    (directory / "0001" / "down").mkdir(parents=True)
    return directory


def test_released_files_are_as_they_were_released(freeze: ModuleType) -> None:
    assert freeze.check(_resources.frozen_dir()) == []
    assert subprocess.run([sys.executable, FREEZE, "--check"], check=False).returncode == 0


def test_files_mean_the_same_online_and_in_a_script(freeze: ModuleType) -> None:
    assert freeze.unfit(_resources.sql_dir()) == []
    assert freeze.unfit(_resources.frozen_dir()) == []


def test_an_unreleased_revision_is_copied_verbatim(freeze: ModuleType, frozen: Path, source: Path) -> None:
    (frozen / "0001" / "up").mkdir()
    (frozen / "0001" / "up" / "stale.sql").write_text("select 1;")
    freeze.freeze(frozen, "0001", source)
    copy = frozen / "0001" / "up"
    assert {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*.sql")} == {
        path.relative_to(source): path.read_bytes() for path in source.rglob("*.sql")
    }
    drops = (frozen / "0001" / "down" / "30_objects.sql").read_text("utf-8")
    assert drops.endswith("drop function\n  fence.f;\ndrop table\n  fence._t;\n")
    assert "cascade;" not in drops.lower()


def test_a_released_revision_is_not_touched(freeze: ModuleType, frozen: Path, source: Path) -> None:
    freeze.freeze(frozen, "0001", source)
    freeze.release(frozen, "0001")
    file = frozen / "0001" / "up" / "00_schema.sql"
    assert hashlib.sha256(file.read_bytes()).hexdigest() in (frozen / "CHECKSUMS").read_text("utf-8")
    assert freeze.check(frozen) == []
    for again in (lambda: freeze.freeze(frozen, "0001", source), lambda: freeze.release(frozen, "0001")):
        with pytest.raises(SystemExit, match="never change"):
            again()


@pytest.mark.parametrize("change", ["edited", "removed", "added"])
def test_a_change_to_a_released_file_is_noticed(freeze: ModuleType, frozen: Path, source: Path, change: str) -> None:
    freeze.freeze(frozen, "0001", source)
    freeze.release(frozen, "0001")
    file = frozen / "0001" / "up" / "00_schema.sql"
    if change == "edited":
        file.write_bytes(file.read_bytes() + b" ")
    elif change == "removed":
        file.unlink()
    else:
        file = file.with_name("01_more.sql")
        file.write_text("select 1;")
    assert freeze.check(frozen) == [file.relative_to(frozen).as_posix()]


@pytest.mark.parametrize("text", [b"select '\xc2\xb5';", b"select 1", b"select 1; -- end"])
def test_files_that_would_differ_in_a_script_are_refused(
    freeze: ModuleType, frozen: Path, source: Path, text: bytes
) -> None:
    (source / "bad.sql").write_bytes(text)
    with pytest.raises(SystemExit, match=r"bad\.sql"):
        freeze.freeze(frozen, "0001", source)
    assert not (frozen / "0001" / "up").exists()
