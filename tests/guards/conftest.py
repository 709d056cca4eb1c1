"""One protected table in three scopes, and the transactions that write to it."""

from __future__ import annotations

import pytest
from guards.scene import SCOPES, Scope, make_tables, protect
from harness import Database


@pytest.fixture(params=list(SCOPES))
def scope(request: pytest.FixtureRequest) -> Scope:
    """Table scope, one column, two columns: one after the other."""
    return SCOPES[request.param]


@pytest.fixture
def t(db: Database, scope: Scope) -> str:
    """public.t, protected in the scope."""
    make_tables(db)
    protect(db, "public.t", scope.template)
    return "public.t"
