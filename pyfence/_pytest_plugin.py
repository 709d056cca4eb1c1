"""The pytest plugin: fixtures, none of them used unless a test asks for it.

An application says where its test database is, in its ``conftest.py``:

>>> @pytest.fixture(scope="session")
... def pyfence_url():
...     return "postgresql://postgres@localhost/app_test"
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyfence import Fence, Lease

_READY: set[str] = set()


@pytest.fixture
def pyfence_url() -> str:
    """URL of the test database, of a role that may own schema fence. To be overridden; else $PYFENCE_TEST_URL."""
    url = os.environ.get("PYFENCE_TEST_URL")
    if not url:
        pytest.fail("pyfence: override the fixture pyfence_url, or set PYFENCE_TEST_URL to a database made for tests")
    return url


@pytest.fixture
def pyfence_database(pyfence_url: str) -> str:
    """The same URL, with the schema and the functions for tests installed: once a process and database."""
    if pyfence_url not in _READY:
        from pyfence.testing import install

        install(pyfence_url)
        _READY.add(pyfence_url)
    return pyfence_url


@pytest.fixture
def pyfence_client(pyfence_database: str) -> Iterator[Fence]:
    """A `Fence` over the test database, closed at the end of the test."""
    from pyfence import Fence

    with Fence(pyfence_database) as fence:
        yield fence


@pytest.fixture
def fenced_resource(pyfence_client: Fence) -> Iterator[Callable[..., Lease]]:
    """``lease = fenced_resource("report:1", ttl=30)`` takes a lease for the test; without a name, on a new resource.

    What is still held at the end of the test is given back.
    """
    from pyfence import FenceError

    held: list[Lease] = []

    def take(resource: str | None = None, ttl: float = 30, owner: str | None = None) -> Lease:
        lease = pyfence_client.acquire(resource or f"test:{uuid.uuid4()}", ttl, owner)
        held.append(lease)
        return lease

    yield take
    for lease in held:
        with suppress(FenceError):
            lease.release()


@pytest.fixture
def expire_lease(pyfence_database: str) -> Callable[[Any], None]:
    """``expire_lease(lease)`` lets a lease, or that of a resource, expire in the database at once."""
    from pyfence.testing import expire

    return lambda lease: expire(pyfence_database, lease)


@pytest.fixture
def assert_protected(pyfence_database: str) -> Callable[..., None]:
    """``assert_protected(Report)`` fails unless the table has an armed guard."""
    from pyfence.testing import assert_protected

    return lambda table, **options: assert_protected(pyfence_database, table, **options)
