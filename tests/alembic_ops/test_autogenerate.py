"""Autogenerate and `alembic check`: markers against the catalog."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic_ops.application import Application
from harness import SUPERUSER, Database, sqlstate

import pyfence.alembic
from pyfence import migrate
from pyfence.sqlalchemy import protection

MARKED = {"info": {"fence": "report:{id}"}}


def guards(db: Database) -> list[tuple[object, ...]]:
    return db.execute("select table_name, resource, expiry, writes, armed from fence.protected_tables order by 1")


def test_a_marker_becomes_a_guard_and_back(db: Database, application: Application) -> None:
    application.table(**MARKED)
    text = application.autogenerate()
    assert text.index("op.create_table('report'") < text.index("op.protect('report', 'report:{id}')")
    assert text.index("op.unprotect('report')") < text.index("op.drop_table('report')")
    assert "import pyfence.alembic" in text
    application.upgrade()
    assert guards(db) == [("report", "report:{id}", "reject", "many", True)]
    assert application.drift() == []

    application.table(info=protection("r:{id}", expiry="until_superseded"))
    text = application.autogenerate()
    assert "op.set_protection('report', resource='r:{id}', expiry='until_superseded')" in text
    assert "op.set_protection('report', resource='report:{id}', expiry='reject')" in text
    application.upgrade()
    assert application.drift() == []
    application.downgrade()
    assert guards(db) == [("report", "report:{id}", "reject", "many", True)]
    application.upgrade()

    application.table()  # the marker is gone
    text = application.autogenerate()
    assert "op.unprotect('report')" in text
    assert "op.protect('report', 'r:{id}', expiry='until_superseded')" in text
    application.upgrade()
    assert guards(db) == []
    assert application.drift() == []
    application.downgrade()
    assert guards(db) == [("report", "r:{id}", "until_superseded", "many", True)]
    application.upgrade()

    db.execute("select fence.protect('public.report', 'report:{id}')")
    assert [diff[0] for diff in application.drift()] == ["remove_protection"]
    application.table(info={"fence": None})  # managed elsewhere
    assert application.drift() == []

    application.metadata.clear()
    text = application.autogenerate()
    assert text.index("op.unprotect('report')") < text.index("op.drop_table('report')")
    application.upgrade()
    assert guards(db) == []
    application.downgrade("base")
    assert db.execute("select code from fence.audit() where object ~ 'report'") == []


def test_columns_are_there_before_the_guard(db: Database, application: Application) -> None:
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    application.table("report", sa.Column("token", sa.BigInteger), info=protection("report:{id}", token_column="token"))
    application.autogenerate()
    application.upgrade()
    assert application.drift() == []
    application.table("report", sa.Column("token", sa.BigInteger), info=protection("report:{id}", token_column=""))
    text = application.autogenerate()
    assert "token_column=''" in text
    assert "token_column='token'" in text
    application.upgrade()
    assert application.drift() == []


@pytest.mark.parametrize(
    "damage",
    [
        "alter table public.report enable trigger all",
        "alter table public.report disable trigger all",
        "do $$ begin execute (select format('drop trigger %I on public.report', min(tgname)) from pg_trigger "
        "where tgrelid = 'public.report'::regclass); end $$",
    ],
    ids=["not always", "disabled", "dropped"],
)
def test_check_reports_a_guard_that_is_not_armed(db: Database, application: Application, damage: str) -> None:
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    db.execute(damage)
    ((kind, _, table, reason, *_),) = application.drift()
    assert (kind, table) == ("modify_protection", "report")
    assert "not armed" in reason
    assert "op.set_protection('report')" in application.autogenerate()
    application.upgrade()
    assert guards(db) == [("report", "report:{id}", "reject", "many", True)]
    assert application.drift() == []
    with sqlstate("LF004"):
        db.execute("insert into public.report values (1)", user="outsider")


def test_what_the_marker_does_not_say_is_left_to_the_database(db: Database, application: Application) -> None:
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    db.execute("select fence.protect('public.report', 'report:{id}', p_expiry => 'until_superseded')")
    assert application.drift() == []
    application.table(info=protection("report:{id}", expiry="reject"))
    assert [diff[0] for diff in application.drift()] == ["modify_protection"]


def test_every_option_goes_there_and_back(db: Database, application: Application) -> None:
    options = "mode, inserts, writes, covering, uncatchable"
    every = {"mode": "observe", "inserts": "allow", "writes": "once", "covering": "reports", "uncatchable": True}
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    application.table(info=protection("report:{id}", **every))
    text = application.autogenerate()
    application.upgrade()
    assert db.execute(f"select {options} from fence.protected_tables") == [
        ("observe", "allow", "once", "reports", True)
    ]
    assert application.drift() == []
    application.metadata.clear()
    application.autogenerate()
    application.upgrade()
    application.downgrade()  # unprotect is taken back with every option
    assert db.execute(f"select {options} from fence.protected_tables") == [
        ("observe", "allow", "once", "reports", True)
    ]
    application.downgrade()
    assert db.execute(f"select {options} from fence.protected_tables") == [("enforce", "check", "many", None, False)]
    assert "covering=''" in text


def test_a_table_that_was_renamed_keeps_its_guard(db: Database, application: Application) -> None:
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    db.execute("alter table public.report rename to story")
    application.metadata.clear()
    application.table("story", **MARKED)
    assert application.drift() == []


@pytest.mark.parametrize("include_schemas", [False, True])
def test_the_schema_fence_is_none_of_the_applications_business(
    db: Database, application: Application, include_schemas: bool
) -> None:
    application.options["include_schemas"] = include_schemas
    application.table(**MARKED)
    application.table("part", info={"fence": "part:{id}"}, postgresql_partition_by="range (id)")
    if include_schemas:
        db.execute("create schema side authorization app_owner", user=SUPERUSER)
        application.table("report", schema="side", info={"fence": "side:{id}"})
    text = application.autogenerate()
    assert "schema='fence'" not in text
    assert "drop" not in text.partition("def downgrade")[0]
    application.upgrade()
    db.execute("create table public.part_1 partition of public.part for values from (0) to (100)")
    db.execute("select fence.repair()")
    application.options["include_object"] = lambda item, name, kind, reflected, _: name != "part_1"
    assert application.drift() == []
    assert "pass" in application.autogenerate()
    application.upgrade()
    gone = next(table for table in application.metadata.sorted_tables if table.name == "report")
    application.metadata.remove(gone)
    assert [diff[0] for diff in application.drift()] == ["remove_protection", "remove_table"]


def test_the_name_filter_keeps_the_schema_from_being_read(db: Database, application: Application) -> None:
    application.options.update(include_schemas=True, include_name=pyfence.alembic.include_name)
    application.table(**MARKED)
    application.autogenerate()
    application.upgrade()
    assert application.drift() == []


def test_an_environment_without_the_import_needs_the_name_filter(db: Database, tmp_path) -> None:
    bare = Application(db, tmp_path / "bare", imports="")
    bare.options.update(include_schemas=True, include_name=pyfence.alembic.include_name)
    bare.table()
    bare.autogenerate()
    bare.upgrade()
    assert bare.drift() == []


def test_a_database_without_pyfence(empty_db: Database, tmp_path) -> None:
    application = Application(empty_db, tmp_path / "app")
    application.table()
    application.autogenerate()
    application.upgrade()
    assert application.drift() == []
    application.table(**MARKED)
    assert [diff[0] for diff in application.drift()] == ["add_protection"]
    migrate.up(empty_db.url("fence_owner"))
    with empty_db.connect("fence_owner", autocommit=True) as owner:
        for (grant,) in owner.execute("select fence._role_grants('app_owner', 'admin')").fetchall():
            owner.execute(grant)
    application.autogenerate()
    application.upgrade()
    assert application.drift() == []


@pytest.mark.parametrize("marker", [{}, 7, {"resource": "a", "nope": 1}, {"mode": "enforce"}])
def test_a_marker_that_cannot_be_read(application: Application, marker: object) -> None:
    application.table(info={"fence": marker})
    with pytest.raises(pyfence.BadArgument, match="report"):
        application.autogenerate()
