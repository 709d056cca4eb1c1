"""One database for all of it: bad input leaves nothing behind, and every test says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Cluster, Database


@pytest.fixture(scope="module")
def db(cluster: Cluster) -> Iterator[Database]:
    """A database of the module's own, with pyfence installed."""
    database = Database(cluster)
    yield database
    database.close()
