"""The pytest plugin, in a run of pytest of its own, and what stands in the way of its use in production."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import sqlalchemy as sa
from harness import SUPERUSER, Database, sqlstate
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pyfence
from pyfence import testing
from pyfence.sqlalchemy import protect_metadata, protection

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def pyfence_url():
    return {url!r}
"""

TESTS = """
import pyfence
import pytest
from psycopg import connect


def test_an_expired_lease_is_refused(pyfence_url, fenced_resource, expire_lease, assert_protected):
    with connect(pyfence_url) as conn:
        conn.execute("create table if not exists public.report (id int primary key, body text)")
        conn.execute("select fence.protect('public.report', 'report:{id}')")
    assert_protected("report", resource="report:{id}")
    lease = fenced_resource("report:1")
    with lease.transaction() as conn:
        conn.execute("insert into public.report values (1, 'new')")
    expire_lease(lease)
    with pytest.raises(pyfence.LeaseExpired):
        lease.renew()
    with pytest.raises(pyfence.LeaseExpired), lease.transaction() as conn:
        conn.execute("update public.report set body = 'late'")


def test_the_lease_of_the_test_before_has_been_given_back(fenced_resource, expire_lease):
    lease = fenced_resource("report:1")
    other = fenced_resource()
    assert other.resource != lease.resource
    expire_lease("report:1")
    assert fenced_resource("report:1").token > lease.token
    with pytest.raises(LookupError):
        expire_lease("nobody")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # An environment that was set up before the entry point existed does not know it; test_wheel looks for it.
    known = entry_points(group="pytest11", name="pyfence")
    plugin = [] if known else ["-p", "pyfence._pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def test_the_fixtures(empty_db: Database, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(url=empty_db.url(SUPERUSER)))
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_without_a_url_only_who_asks_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_lazy():\n    assert 'psycopg' not in sys.modules\n"
        "    assert 'sqlalchemy' not in sys.modules\n\ndef test_asks(fenced_resource):\n    pass\n"
    )
    done = run_pytest(tmp_path)
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "override the fixture pyfence_url" in done.stdout


def test_no_role_of_production_can_install_it_and_no_used_database_gets_it(db: Database) -> None:
    for user in ("app", "app_owner", "monitor", "outsider"):
        with pytest.raises((pyfence.FenceError, sa.exc.DBAPIError, Exception)) as refused:
            testing.install(db.url(user))
        assert db.execute("select to_regnamespace('fence_testing')") == [(None,)], refused
    db.execute("select fence.acquire('a')", user="app")
    for user in ("fence_owner", SUPERUSER):
        with pytest.raises((pyfence.BadArgument, pyfence.FenceError)):
            testing.install(db.url(user))
    assert db.execute("select to_regnamespace('fence_testing')") == [(None,)]
    with pytest.raises(pyfence.SchemaMismatch, match="functions for tests"):
        testing.expire(db.url("app"), "a")


def test_the_doctor_names_it_and_who_was_not_let_is_refused(db: Database) -> None:
    testing.install(db.url("fence_owner"), clients=["app"])
    testing.install(db.url("fence_owner"), clients=["app"])
    db.execute("select fence.acquire('a')", user="app")
    with sqlstate("42501"):
        db.execute("select fence_testing.expire('a')", user="outsider")
    testing.expire(db.url("app"), "a")
    assert db.execute("select state from fence.leases") == [("expired",)]
    ((severity, remedy),) = db.execute("select severity, remedy from fence.audit() where code = 'test-functions'")
    assert severity == "error"
    db.execute(remedy, user="fence_owner")
    assert db.execute("select from fence.audit() where code = 'test-functions'") == []


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "note"
    __table_args__ = {"info": protection("note:{id}")}  # noqa: RUF012
    id: Mapped[int] = mapped_column(primary_key=True)


def test_create_all_makes_guards_only_where_it_was_asked_to(db: Database) -> None:
    engine = sa.create_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(db.url("app_owner")))
    with pytest.raises(AssertionError, match="no table"):
        testing.assert_protected(engine, Note)
    Base.metadata.create_all(engine)
    with pytest.raises(AssertionError, match="create_all"):
        testing.assert_protected(engine, Note)
    Base.metadata.drop_all(engine)
    protect_metadata(Base.metadata)
    protect_metadata(Base.metadata)
    for _ in range(2):
        Base.metadata.create_all(engine)
        Base.metadata.create_all(engine)
        testing.assert_protected(engine, Note, resource="note:{id}")
        with Session(engine) as session:
            testing.assert_protected(session, Note.__table__)
        Base.metadata.drop_all(engine)
        Base.metadata.drop_all(engine)
    assert db.execute("select from fence.protected_tables") == []
    assert db.execute("select from pg_proc where proname ~ '^_guard_[0-9]'") == []
    Base.metadata.create_all(engine)
    db.execute("alter table public.note enable trigger all")
    with pytest.raises(AssertionError, match="not armed"):
        testing.assert_protected(engine, "note")
    with pytest.raises(AssertionError, match="protected for"):
        db.execute("select fence.protect('public.note', 'note:{id}')")
        testing.assert_protected(engine, "note", resource="other")
    engine.dispose()
