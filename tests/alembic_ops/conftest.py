"""An application over a database with pyfence."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic_ops.application import Application
from harness import Database


@pytest.fixture
def application(db: Database, tmp_path: Path) -> Application:
    return Application(db, tmp_path / "migrations")
