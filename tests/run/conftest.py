"""A table under one lease, and the program."""

from __future__ import annotations

import sys

import pytest
from harness import Database
from run.runner import RESOURCE, Runner

if not sys.platform.startswith("linux"):
    collect_ignore_glob = ["test_*.py"]  # they look into /proc


@pytest.fixture
def run(db: Database) -> Runner:
    """The program over public.report, of which every write needs the lease 'nightly'."""
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    db.execute("select fence.protect('public.report', %s)", (RESOURCE,))
    return Runner(db)
