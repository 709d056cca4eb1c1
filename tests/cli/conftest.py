"""What the tests of the command line share."""

from __future__ import annotations

import pytest
from cli.command import CommandLine
from harness import Database


@pytest.fixture
def cli(db: Database) -> CommandLine:
    """The command line over a database with pyfence, as app_owner unless told otherwise."""
    return CommandLine(db.url("app_owner"))


@pytest.fixture
def empty_cli(empty_db: Database) -> CommandLine:
    """The command line over a database without pyfence, as its owner."""
    return CommandLine(empty_db.url("fence_owner"))


@pytest.fixture
def report(db: Database) -> str:
    """A table of app_owner's, not protected."""
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    return "public.report"
