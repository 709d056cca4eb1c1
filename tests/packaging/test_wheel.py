"""What is installed is what the checkout has: the wheel carries the SQL and the migrations, and migrates with them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from harness import Database

ROOT = Path(__file__).resolve().parents[2]

MIGRATE = """
import sys
import pyfence
from pyfence import _resources, migrate
print(pyfence.__file__, _resources.sql_dir(), _resources.migrations_dir(), sep="\\n")
migrate.up(sys.argv[1])
"""


def run(*command: str, **environment: str) -> str:
    """Run a command far from the checkout and return what it printed."""
    done = subprocess.run(
        command, cwd="/", env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist from a source folder, without a network."""
    script = f"import os, hatchling.build as b; os.chdir({str(source)!r}); print(b.build_{target}({str(folder)!r}))"
    return folder / run(sys.executable, "-c", script).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed into it, and nothing else of pyfence."""
    target = tmp_path_factory.mktemp("installed")
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    )
    return target


def files_below(folder: Path, *suffixes: str) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and (not suffixes or path.suffix in suffixes)
    }


def test_wheel_carries_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for inside, outside in (("_sql", "sql"), ("_migrations", "migrations"), ("", "pyfence")):
        expected = {f"pyfence/{inside}/{name}".replace("//", "/") for name in files_below(ROOT / outside)}
        assert expected <= names, sorted(expected - names)
    assert len([name for name in names if name.startswith("pyfence/_sql/")]) > 40
    assert any(name.startswith("pyfence/_migrations/versions/") for name in names)


def test_wheel_carries_nothing_else(wheel: Path) -> None:
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"pyfence"}
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" in name or name.endswith(".pyc")]


def test_wheel_names_itself_and_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
        entry_points = archive.read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
        license_text = archive.read(next(name for name in names if name.endswith("/licenses/LICENSE"))).decode()
    assert metadata["Name"] == "pyfence-postgres"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload()  # the README
    assert license_text == (ROOT / "LICENSE").read_text()
    assert "pyfence = pyfence.cli:main" in entry_points
    assert "[pytest11]\npyfence = pyfence._pytest_plugin" in entry_points
    assert "pyfence/py.typed" in names


def test_an_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path)
    run("tar", "-xzf", str(sdist), "-C", str(tmp_path))
    again = build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path)
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_installed_wheel_migrates_a_database(installed: Path, empty_db: Database) -> None:
    said = run(sys.executable, "-c", MIGRATE, empty_db.url("fence_owner"), PYTHONPATH=str(installed))
    assert [Path(line).is_relative_to(installed) for line in said.splitlines()[:3]] == [True] * 3
    assert empty_db.execute("select fence.schema_version()", user="fence_owner")


def test_the_installed_command_migrates_a_database(installed: Path, empty_db: Database) -> None:
    program = str(installed / "bin" / "pyfence")
    url = empty_db.url("fence_owner")
    run(sys.executable, program, "--database-url", url, "migrate", "up", PYTHONPATH=str(installed))
    assert empty_db.execute("select fence.schema_version()", user="fence_owner")


def test_an_editable_install_finds_the_checkout() -> None:
    script = "from pyfence import _resources as r; print(r.sql_dir(), r.migrations_dir(), r.frozen_dir(), sep='\\n')"
    said = run(sys.executable, "-c", script)
    if "site-packages" in said:
        pytest.skip("pyfence is not installed in the editable way")
    assert said.split() == [str(ROOT / "sql"), str(ROOT / "migrations"), str(ROOT / "migrations" / "frozen")]
