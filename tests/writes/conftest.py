"""Tables that count their writes."""

from __future__ import annotations

import pytest
from harness import Database
from writes.scene import KINDS, Kind, Scene, make


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Table scope, row scope, two columns, and both scopes over partitions."""
    return KINDS[request.param]


@pytest.fixture
def once(db: Database, kind: Kind) -> Scene:
    """A token writes once."""
    return make(db, kind, p_writes="once")


@pytest.fixture
def sequenced(db: Database, kind: Kind) -> Scene:
    """A token's writes are numbered."""
    return make(db, kind, p_writes="sequenced")


@pytest.fixture
def rows(db: Database) -> Scene:
    """Row scope, numbered: for what does not depend on the scope."""
    return make(db, KINDS["row"], p_writes="sequenced")
