"""Where the SQL files and the migrations are: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _find(packaged: str, in_checkout: str) -> Path:
    """Return the directory a wheel carries as `packaged` and a checkout keeps as `in_checkout`."""
    for path in (_PACKAGE / packaged, _PACKAGE.parent / in_checkout):
        if path.is_dir():
            return path
    raise FileNotFoundError(f"this installation of pyfence is incomplete: it has no {packaged}")


def sql_dir() -> Path:
    """The product's SQL as it stands now: one object a file."""
    return _find("_sql", "sql")


def migrations_dir() -> Path:
    """The Alembic environment: `env.py`, `versions/` and `frozen/`."""
    return _find("_migrations", "migrations")


def frozen_dir() -> Path:
    """The frozen SQL of every revision: `NNNN/up` and `NNNN/down`."""
    return migrations_dir() / "frozen"


def sql_files(directory: Path) -> list[Path]:
    """List the SQL files below `directory` in load order: sorted by their path relative to it, in ASCII order."""
    files = [path for path in directory.rglob("*.sql") if path.is_file()]
    return sorted(files, key=lambda path: path.relative_to(directory).as_posix())
