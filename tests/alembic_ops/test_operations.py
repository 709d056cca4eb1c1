"""op.protect, op.unprotect and op.set_protection: online, offline, reversed, on a busy table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import alembic.command
import psycopg
import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic_ops.application import Application
from harness import Database, sqlstate
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import create_async_engine

import pyfence
import pyfence.alembic
from pyfence import migrate

CREATE = "op.execute('create table report (id bigint primary key, body text, token bigint)')"


def guard(db: Database, columns: str = "resource, mode, expiry, writes") -> list[tuple[object, ...]]:
    return db.execute(f"select {columns} from fence.protected_tables")


def test_up_and_down(db: Database, application: Application) -> None:
    application.write(
        f"{CREATE}\nop.protect('report', 'report:{{id}}', expiry='until_superseded')", "op.drop_table('report')"
    )
    application.write(
        "op.set_protection('report', writes='once', token_column='token')",
        "op.set_protection('report', writes='many', token_column='')",
    )
    application.write("op.unprotect('report')", "op.protect('report', 'report:{id}', schema='public')")
    application.upgrade("app1")
    assert guard(db) == [("report:{id}", "enforce", "until_superseded", "many")]
    application.upgrade("app2")
    assert guard(db, "resource, expiry, writes, token_column") == [("report:{id}", "until_superseded", "once", "token")]
    application.downgrade()
    assert guard(db, "expiry, writes, token_column") == [("until_superseded", "many", None)]
    application.upgrade()
    assert guard(db) == []
    db.execute("insert into public.report values (1)", user="outsider")
    application.downgrade()
    assert guard(db) == [("report:{id}", "enforce", "reject", "many")]
    with sqlstate("LF004"):
        db.execute("insert into public.report values (2)", user="outsider")


def test_a_script_does_the_same(db: Database, application: Application) -> None:
    application.write(
        f'{CREATE}\nop.execute(\'create table "Odd ""name" ("a:b" text primary key)\')\n'
        "op.protect('report', 'report:{id}')\n"
        "op.protect('Odd \"name', 'it''s 100% :a \\\\ {a:b}')\n"
        "op.set_protection('report', writes='once')"
    )
    script = application.sql(alembic.command.upgrade, "head")
    for settings in ("", "set standard_conforming_strings = off;\n"):
        with db.connect("app_owner", autocommit=True, search_path="public") as connection:
            connection.execute((settings + script).encode())
            found = sorted(guard(db, "table_name, resource, writes"))
            assert found == [('Odd "name', "its 100% :a \\ {a:b}", "many"), ("report", "report:{id}", "once")]
            timeout = connection.execute("show lock_timeout").fetchone()
            assert timeout == ("0",)
            for table in ("report", '"Odd ""name"', "alembic_version"):
                connection.execute(f"drop table {table}")  # type: ignore[arg-type]


def test_a_busy_table_is_left_alone_and_its_writers_go_on(db: Database, application: Application) -> None:
    db.execute("create table public.report (id bigint primary key, body text)")
    application.write(
        "op.protect('report', 'report:{id}', lock_timeout='300ms')", "op.unprotect('report', lock_timeout='300ms')"
    )
    writer = db.connect("app")
    writer.execute("insert into public.report values (1)")
    upgrading = db.in_thread(application.upgrade)
    with pytest.raises(psycopg.errors.LockNotAvailable) as busy:
        upgrading.result(20)
    assert "within 300ms" in str(busy.value)
    assert busy.value.diag.message_hint is not None
    db.execute("insert into public.report values (2)", user="outsider")  # nobody queues, nothing is guarded
    writer.commit()
    assert guard(db) == []
    application.upgrade()
    writer.execute("select pg_advisory_xact_lock(1); select * from public.report")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        db.in_thread(application.downgrade).result(20)
    writer.rollback()
    application.downgrade()
    assert guard(db) == []


def test_mistakes(db: Database, empty_db: Database, application: Application, tmp_path) -> None:
    for code in (
        "op.protect('report', 'report:{id}', lock_timeout='0')",
        "op.protect('report', 'report:{id}', lock_timeout=2)",
        "op.protect('report', 'report:{nope}')",
        "op.protect('report', 'report:{id}', expiry='never')",
        "op.set_protection('report', writes='once')",  # it is not protected
    ):
        wrong = Application(db, tmp_path / str(abs(hash(code))))
        wrong.write(f"{CREATE}\n{code}")
        with pytest.raises(pyfence.BadArgument):
            wrong.upgrade()
    assert db.execute("select to_regclass('public.report')") == [(None,)]
    nowhere = Application(empty_db, tmp_path / "nowhere")
    nowhere.write(f"{CREATE}\nop.protect('report', 'report:{{id}}')")
    with pytest.raises(pyfence.SchemaMismatch, match="migrate up"):
        nowhere.upgrade()


def test_an_asynchronous_environment(db: Database) -> None:
    db.execute("create table public.report (id bigint primary key, body text)")
    db.execute("create table public.busy (id bigint primary key)")
    writer = db.connect("app")
    writer.execute("insert into public.busy values (1)")

    def change(connection: sa.Connection) -> None:
        op = Operations(MigrationContext.configure(connection))
        op.protect("report", "report:{id}")
        op.set_protection("report", writes="once")
        with pytest.raises(pyfence.BadArgument), connection.begin_nested():
            op.protect("report", "report:{nope}")
        with sqlstate("55P03"), connection.begin_nested():
            op.protect("busy", "busy:{id}", lock_timeout="100ms")

    async def run() -> None:
        engine = create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(db.url("app_owner")))
        async with engine.begin() as connection:
            await connection.run_sync(change)
        await engine.dispose()

    asyncio.run(run())
    assert guard(db) == [("report:{id}", "enforce", "reject", "once")]


def test_a_role_without_rights_is_told_which(empty_db: Database, tmp_path: Path) -> None:
    migrate.up(empty_db.url("fence_owner"))
    application = Application(empty_db, tmp_path / "app")
    application.table(info={"fence": "report:{id}"})
    with pytest.raises(pyfence.FenceError, match="role add ROLE --as admin"):
        application.autogenerate()
    by_hand = Application(empty_db, tmp_path / "by hand")
    by_hand.write(f"{CREATE}\nop.protect('report', 'report:{{id}}')")
    with pytest.raises(pyfence.FenceError, match="role add ROLE --as admin"):
        by_hand.upgrade()
