"""A stage for each major version that is there. The newest in the default run, all with `-m ha`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ha.nodes import Node, Stage, majors, make_origin, programs_of

from pyfence import _programs

_MAJORS = dict(majors())
_FIRST = next(iter(_MAJORS), None)


@pytest.fixture(
    scope="session",
    params=[pytest.param(major, marks=[] if major == _FIRST else [pytest.mark.ha]) for major in _MAJORS]
    or [
        pytest.param(None, marks=pytest.mark.skip("no PostgreSQL with pg_basebackup: nothing about failover is shown"))
    ],
)
def origin(request: pytest.FixtureRequest) -> Iterator[tuple[_programs.Programs, Path]]:
    """The programs of a major version, and a data directory with pyfence in it."""
    programs = programs_of(_MAJORS[request.param])
    stage = Stage(programs, None)
    try:
        yield programs, make_origin(stage)
    finally:
        stage.close()
        programs.close()


@pytest.fixture
def stage(origin: tuple[_programs.Programs, Path]) -> Iterator[Stage]:
    stage = Stage(*origin)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def primary(stage: Stage) -> Node:
    return stage.primary()
