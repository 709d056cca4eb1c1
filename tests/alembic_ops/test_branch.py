"""The schema's migrations as a branch of the application's environment; never both ways on one database."""

from __future__ import annotations

import io
from pathlib import Path

import alembic.command
import psycopg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic_ops.application import Application
from harness import Database, sqlstate
from psycopg.conninfo import conninfo_to_dict

import pyfence
from pyfence import _resources, migrate

BRANCH = "pyfence.alembic:branch"


class WithBranch(Application):
    """The application's environment, with pyfence's revisions as a second version location."""

    def __init__(self, db: Database, folder: Path) -> None:
        super().__init__(db, folder)
        self.engine = sa.create_engine(
            "postgresql+psycopg://", connect_args=conninfo_to_dict(db.url("fence_owner")), poolclass=sa.NullPool
        )

    def config(self, output: io.StringIO | None = None) -> Config:
        config = super().config(output)
        config.set_main_option("path_separator", "space")
        config.set_main_option("version_locations", f"{self.folder / 'versions'} {BRANCH}")
        return config


@pytest.fixture
def application(empty_db: Database, tmp_path: Path) -> WithBranch:
    application = WithBranch(empty_db, tmp_path / "app")
    application.write("op.execute('create table fine (id int)')", "op.execute('drop table fine')")
    return application


def objects(db: Database) -> list[tuple[object, ...]]:
    return db.execute(
        """
        select p.oid::regprocedure::text, pg_get_functiondef(p.oid) from pg_proc p
        where pronamespace = 'fence'::regnamespace
        union all
        select c.oid::regclass::text, c.relkind::text from pg_class c
        where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v')
        order by 1, 2
        """,
        user="fence_owner",
    )


def test_it_makes_the_same_schema_and_takes_it_back(db: Database, empty_db: Database, application: WithBranch) -> None:
    application.upgrade("heads")
    assert objects(empty_db) == objects(db)
    assert empty_db.execute("select version_num from public.alembic_version order by 1", user="fence_owner") == [
        ("app1",),
        ("fence_0001",),
    ]
    assert migrate.check(empty_db.url("fence_owner")) == migrate.head()
    with pyfence.Fence(empty_db.url("fence_owner")) as fence, fence.lease("a") as lease:
        assert lease.token > 0
    application.downgrade("fence@base")
    assert objects(empty_db) == [("fence.alembic_version", "r")]
    application.downgrade("app1@base")
    application.upgrade("heads")
    assert objects(empty_db) == objects(db)


def test_a_script_does_the_same(db: Database, empty_db: Database, application: WithBranch) -> None:
    script = application.sql(alembic.command.upgrade, "heads")
    with psycopg.connect(empty_db.url("fence_owner"), autocommit=True) as owner:
        owner.execute(script.encode())
    assert objects(empty_db) == objects(db)
    assert empty_db.execute("select count(*) from pg_tables where tablename = 'fine' and schemaname = 'public'") == [
        (1,)
    ]


def test_never_both(empty_db: Database, application: WithBranch) -> None:
    url = empty_db.url("fence_owner")
    application.upgrade("heads")
    for call in (migrate.up, migrate.down, migrate.stamp):
        with pytest.raises(pyfence.SchemaMismatch, match="fence@head"):
            call(url)
    assert migrate.check(url) == migrate.head()
    application.downgrade("fence@base")
    migrate.up(url)
    with sqlstate("55000") as both:
        application.upgrade("fence@head")
    assert "never by both" in both.diag.message_detail
    assert "pyfence migrate" in both.diag.message_hint
    assert migrate.check(url) == migrate.head()


def test_the_doctor_says_so(empty_db: Database, application: WithBranch) -> None:
    url = empty_db.url("fence_owner")
    migrate.up(url)
    alembic.command.stamp(application.config(), "fence@head")
    (found,) = empty_db.execute(
        "select severity, object, remedy from fence.audit() where code = 'migrated-twice'", user="fence_owner"
    )
    assert found[:2] == ("error", "public.alembic_version")
    empty_db.execute(found[2], user="fence_owner")
    assert empty_db.execute("select from fence.audit() where code = 'migrated-twice'", user="fence_owner") == []


def test_from_one_way_to_the_other(empty_db: Database, application: WithBranch) -> None:
    url = empty_db.url("fence_owner")
    migrate.up(url)
    alembic.command.stamp(application.config(), "fence@head")
    empty_db.execute("update fence.alembic_version set version_num = 'fence_' || version_num", user="fence_owner")
    application.upgrade("heads")
    assert migrate.check(url) == migrate.head()
    assert empty_db.execute("select from fence.audit() where code = 'migrated-twice'", user="fence_owner") == []
    application.downgrade("fence@base")
    assert objects(empty_db) == [("fence.alembic_version", "r")]


def test_every_revision_has_its_twin() -> None:
    ours = {path.name for path in (_resources.migrations_dir() / "versions").glob("0*.py")}
    twins = {path.name for path in Path(pyfence.__file__).parent.glob("alembic/branch/fence_*.py")}
    assert {f"fence_{name[:4]}.py" for name in ours} == twins
