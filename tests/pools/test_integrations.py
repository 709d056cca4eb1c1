"""SQLAlchemy, Alembic and the schema's migrations through PgBouncer in transaction mode, where no session lasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from guards.scene import Lease
from harness import Database
from pools.pgbouncer import PROGRAM, PgBouncer
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

import pyfence
import pyfence.alembic
from pyfence import migrate
from pyfence.sqlalchemy import fenced, fenced_execute

SET_1 = sa.text("update public.report set body = :body where id = 1")
ADVISORY = (
    "select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = %s)"
)


def engine_over(url: str) -> sa.Engine:
    arguments = {**conninfo_to_dict(url), "prepare_threshold": None}
    return sa.create_engine("postgresql+psycopg://", connect_args=arguments)


def bodies(db: Database) -> list[str]:
    return [body for (body,) in db.execute("select body from public.report order by id", user="outsider")]


@pytest.fixture
def two_backends(db: Database) -> Iterator[PgBouncer]:
    """PgBouncer that gives every transaction the backend that has waited longest."""
    if PROGRAM is None:
        pytest.skip("there is no program pgbouncer (Debian, Ubuntu: apt install pgbouncer)")
    with PgBouncer(db.cluster.server.settings["port"], size=2, round_robin=True) as bouncer:
        yield bouncer


def test_every_transaction_of_a_session_is_covered(two_backends: PgBouncer, db: Database, lease: Lease) -> None:
    claim = pyfence.Claim("report:1", lease.token, lease.secret)
    engine = engine_over(two_backends.url(db.url("app")))
    with Session(engine) as session, fenced(session, claim):
        for body in ("first", "second", "third"):
            session.execute(SET_1, {"body": body})
            with session.begin_nested():
                session.execute(SET_1, {"body": body + "!"})
            session.commit()
    with Session(engine) as session:
        with pytest.raises(pyfence.ClaimMissing):
            session.execute(SET_1, {"body": "x"})
        session.rollback()
        assert fenced_execute(session, SET_1, claim, {"body": "last"}) == 1
        session.commit()
    engine.dispose()
    assert bodies(db) == ["last", "old"]


def test_alembic_and_the_schemas_migrations(two_backends: PgBouncer, db: Database, empty_db: Database) -> None:
    db.execute("create table public.report (id bigint primary key, body text)")
    engine = engine_over(two_backends.url(db.url("app_owner")))
    for _ in range(2):
        with engine.begin() as connection:
            Operations(MigrationContext.configure(connection)).protect("report", "report:{id}", schema="public")
    with engine.begin() as connection:
        assert connection.exec_driver_sql("show lock_timeout").scalar() == "0"
    engine.dispose()
    assert db.execute("select armed from fence.protected_tables") == [(True,)]
    url = two_backends.url(empty_db.url("fence_owner"))
    for _ in range(2):  # nothing is stranded on another backend
        migrate.up(url)
    assert migrate.check(url) == migrate.head()
    for database in (db, empty_db):
        assert db.cluster.admin.execute(ADVISORY, (database.name,)).fetchall() == []
