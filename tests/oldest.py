"""Run the tests of what builds on SQLAlchemy and Alembic with the oldest versions of them that pyfence accepts.

    make test-oldest
    make test-oldest ARGS="tests/orm -k savepoint"

They are put into a folder of the environment, in front of the newer ones. Options and paths go to pytest; the exit
code is its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(sys.prefix) / "oldest"
PATHS = ["tests/orm", "tests/alembic_ops", "tests/migrations"]


def oldest(name: str) -> str:
    """The lowest version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (found,) = (m[1] for d in project["dependencies"] if (m := re.fullmatch(rf"{name}>=([\d.]+)", d)))
    return str(found)


def main() -> int:
    """Install them where that has not been done, and run pytest."""
    wanted = [f"{name}=={oldest(name)}" for name in ("sqlalchemy", "alembic")]
    stamp = FOLDER / "versions.txt"
    if not stamp.is_file() or stamp.read_text("utf-8").split() != wanted:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
        ]
        subprocess.run([*pip, "--target", str(FOLDER), *wanted], check=True)
        stamp.write_text("\n".join(wanted), "utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])}
    arguments = sys.argv[1:]
    paths = [] if any(argument.startswith("tests/") for argument in arguments) else PATHS
    tell = "import sqlalchemy, alembic; print('sqlalchemy', sqlalchemy.__version__, 'alembic', alembic.__version__)"
    subprocess.run([sys.executable, "-c", tell], env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, *paths]
    return subprocess.call(command, cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main())
