"""up, down, current, check, stamp and sql: what they do, what they refuse, and whose transaction they are in."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from harness import SUPERUSER, Database
from migrations.catalog import differences, identities
from psycopg.rows import dict_row

from pyfence import _resources, migrate
from pyfence.errors import BadArgument, FenceError, SchemaMismatch

from .conftest import VERSION_TABLE, catalog, install_from

LEFT_BY_DOWN = {
    "schema fence",
    f"table {VERSION_TABLE}",
    f"column {VERSION_TABLE} version_num",
    f"index {VERSION_TABLE}_pkc",
    f"constraint {VERSION_TABLE} alembic_version_pkc",
    f"constraint {VERSION_TABLE} alembic_version_version_num_not_null",  # from PostgreSQL 18 on
}


@pytest.fixture
def url(empty_db: Database) -> str:
    """A database without pyfence, as its owner."""
    return empty_db.url("fence_owner")


@pytest.fixture
def two_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another revision after the newest one: it adds a function."""
    directory = tmp_path / "migrations"
    shutil.copytree(_resources.migrations_dir(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    text = (directory / "versions" / "0001_leases_and_guards.py").read_text("utf-8")
    text = text.replace('"0001"', '"next"').replace("None", f'"{migrate.head()}"', 1).replace("0001/", "next/")
    (directory / "versions" / "next.py").write_text(text, encoding="utf-8")
    for part, statement in (
        ("up", "create function fence._extra() returns text language sql as $$ select '100%' || ':x' $$;"),
        ("down", "drop function fence._extra();"),
    ):
        (directory / "frozen" / "next" / part).mkdir(parents=True)
        (directory / "frozen" / "next" / part / "extra.sql").write_text(statement, encoding="utf-8")
    monkeypatch.setattr(_resources, "migrations_dir", lambda: directory)


# -- up and down ------------------------------------------------------------------------------------------------------


def test_up_down_up(empty_db: Database, url: str) -> None:
    assert migrate.current(url) is None
    migrate.up(url)
    assert migrate.current(url) == migrate.head() == migrate.check(url)
    first = catalog(empty_db)

    migrate.down(url)
    assert migrate.current(url) is None
    assert identities(catalog(empty_db)) <= LEFT_BY_DOWN
    assert empty_db.execute(f"select count(*) from {VERSION_TABLE}", user="fence_owner") == [(0,)]

    migrate.up(url)
    assert differences(first, catalog(empty_db)) == []


def test_up_and_down_again_do_nothing(empty_db: Database, url: str) -> None:
    migrate.up(url)
    first = catalog(empty_db)
    lineage = empty_db.execute("select floor from fence._authority", user="fence_owner")
    migrate.up(url)
    assert differences(first, catalog(empty_db)) == []
    assert empty_db.execute("select floor from fence._authority", user="fence_owner") == lineage
    migrate.down(url)
    migrate.down(url)


def test_tokens_after_down_and_up_are_above_the_old_ones(empty_db: Database, url: str) -> None:
    migrate.up(url)
    [(old,)] = empty_db.execute("select token from fence.acquire('r')", user="fence_owner")
    migrate.down(url)
    migrate.up(url)
    [(new,)] = empty_db.execute("select token from fence.acquire('r')", user="fence_owner")
    assert new > old


def test_nothing_outside_the_schema(empty_db: Database, url: str) -> None:
    # pg_toast holds the overflow of the schema's own tables
    count = """
        select (select count(*) from pg_class c where c.relnamespace <> all (s.ids)),
               (select count(*) from pg_proc p where p.pronamespace <> all (s.ids)),
               (select count(*) from pg_type t where t.typnamespace <> all (s.ids)),
               (select count(*) from pg_namespace n where n.nspname <> 'fence'),
               (select count(*) from pg_extension)
          from (select array_agg(n.oid) as ids from pg_namespace n where n.nspname in ('fence', 'pg_toast')) s
    """
    before = empty_db.execute(count)
    migrate.up(url)
    assert empty_db.execute(count) == before


def test_down_is_refused_while_a_table_is_protected(db: Database) -> None:
    db.execute('create table public."Odd, name" (id integer primary key)')
    db.execute("""select fence.protect('public."Odd, name"', 'odd:{id}')""")
    before = catalog(db)
    with pytest.raises(FenceError) as refused:
        migrate.down(db.url("fence_owner"))
    assert 'public."Odd, name"' in str(refused.value)
    assert refused.value.hint is not None
    assert "fence.unprotect" in refused.value.hint
    assert differences(before, catalog(db)) == []

    db.execute(refused.value.hint.split(": ", 1)[1])  # the hint is the command
    migrate.down(db.url("fence_owner"))
    assert identities(catalog(db)) <= LEFT_BY_DOWN


def test_down_after_a_protected_table_was_dropped(db: Database) -> None:
    db.execute("create table public.t (id integer primary key)")
    db.execute("select fence.protect('public.t', 't:{id}')")
    db.execute("drop table public.t")
    migrate.down(db.url("fence_owner"))
    assert identities(catalog(db)) <= LEFT_BY_DOWN


def test_down_drops_nothing_of_a_users(db: Database) -> None:
    db.execute("create view fence.mine as select resource from fence.leases", user="fence_owner")
    before = catalog(db)
    with pytest.raises(FenceError) as refused:
        migrate.down(db.url("fence_owner"))
    assert "fence.mine" in str(refused.value)
    assert "CASCADE" not in str(refused.value)
    assert differences(before, catalog(db)) == []


def test_down_leaves_what_a_user_put_into_the_schema(db: Database) -> None:
    db.execute("create table fence.mine as select 1 as a", user="fence_owner")
    migrate.down(db.url("fence_owner"))
    assert db.execute("select a from fence.mine", user="fence_owner") == [(1,)]


def test_up_refuses_another_owner(empty_db: Database, url: str) -> None:
    migrate.up(url)
    with pytest.raises(FenceError, match="belongs to role fence_owner") as refused:
        migrate.up(empty_db.url(SUPERUSER))
    assert refused.value.hint is not None
    assert "set role fence_owner" in refused.value.hint


def test_up_into_a_schema_that_a_superuser_made(empty_db: Database, url: str) -> None:
    empty_db.execute("create schema fence", user=SUPERUSER)
    empty_db.execute("grant usage, create on schema fence to fence_owner", user=SUPERUSER)
    empty_db.execute(f"revoke create on database {empty_db.name} from fence_owner", user=SUPERUSER)
    migrate.up(url)
    assert migrate.check(url) == migrate.head()
    migrate.down(url)


def test_up_says_what_to_do_where_the_objects_are_but_no_version(url: str) -> None:
    install_from(_resources.frozen_dir() / "0001" / "up", url)
    with pytest.raises(SchemaMismatch, match="migrate stamp"):
        migrate.up(url)
    migrate.stamp(url)
    assert migrate.check(url) == migrate.head()
    migrate.up(url)
    migrate.down(url)


# -- check and stamp --------------------------------------------------------------------------------------------------


def test_check_where_nothing_is_installed(url: str) -> None:
    with pytest.raises(SchemaMismatch, match="not installed"):
        migrate.check(url)


def test_check_says_behind(url: str, request: pytest.FixtureRequest) -> None:
    migrate.up(url)
    before = migrate.head()
    request.getfixturevalue("two_revisions")
    with pytest.raises(SchemaMismatch, match=f"behind: at revision {before}, needed next; run: pyfence migrate up"):
        migrate.check(url)
    migrate.up(url)
    assert migrate.check(url) == "next"


def test_a_newer_schema_than_this_version_knows(empty_db: Database, url: str) -> None:
    migrate.up(url)
    empty_db.execute(f"update {VERSION_TABLE} set version_num = 'future'", user="fence_owner")
    with pytest.raises(SchemaMismatch, match="future, which this version of pyfence does not know; upgrade pyfence"):
        migrate.check(url)
    with pytest.raises(SchemaMismatch, match="future"):
        migrate.up(url)


def test_check_notices_missing_objects(empty_db: Database, url: str) -> None:
    migrate.up(url)
    empty_db.execute("drop function fence.schema_version()", user="fence_owner")
    with pytest.raises(SchemaMismatch, match="lacks schema_version"):
        migrate.check(url)


def test_check_without_the_right_to_look(empty_db: Database, url: str) -> None:
    migrate.up(url)
    with pytest.raises(FenceError, match="permission denied"):
        migrate.check(empty_db.url("outsider"))


def test_stamp_is_refused_where_the_objects_are_not(empty_db: Database, url: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"lacks .*acquire"):
        migrate.stamp(url)
    assert identities(catalog(empty_db)) == set()
    migrate.up(url)
    with pytest.raises(SchemaMismatch, match="still holds"):
        migrate.stamp(url, "base")
    assert migrate.current(url) == migrate.head()
    with pytest.raises(BadArgument):
        migrate.stamp(url, "nonsense")


# -- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_revisions")
def test_scripts_step_by_step(empty_db: Database, url: str, psql: Callable[..., str]) -> None:
    psql(url, migrate.sql("base:0001"))
    first = catalog(empty_db)
    psql(url, migrate.sql("0001:next"))
    assert migrate.check(url) == "next"
    assert empty_db.execute("select fence._extra()", user="fence_owner") == [("100%:x",)]
    psql(url, migrate.sql("next:0001"))
    assert differences(first, catalog(empty_db)) == []
    psql(url, migrate.sql("0001:base"))
    assert identities(catalog(empty_db)) <= LEFT_BY_DOWN
    psql(url, migrate.sql("head"))
    assert migrate.check(url) == "next"


@pytest.mark.parametrize("setting", ["client_encoding=LATIN1", "default_transaction_isolation=serializable"])
def test_scripts_bring_their_own_settings(url: str, psql: Callable[..., str], setting: str) -> None:
    psql(f"{url}?options=-c%20{setting.replace('=', '%3D')}", migrate.sql())
    assert migrate.check(url) == migrate.head()


def test_a_script_stops_where_it_does_not_start(empty_db: Database, url: str, psql: Callable[..., str]) -> None:
    script = migrate.sql()
    psql(url, script)
    before = catalog(empty_db)
    assert "starts from revision base, but the database is at" in psql(url, script, fails=True)
    assert differences(before, catalog(empty_db)) == []
    migrate.down(url)
    assert "starts from revision" in psql(url, migrate.sql("head:base"), fails=True)


@pytest.mark.parametrize("revisions", ["nonsense", "base:nonsense", "head:head", "base", "", ":", "a:b:c", "0001;--"])
def test_scripts_of_unknown_ranges(revisions: str) -> None:
    with pytest.raises(BadArgument):
        migrate.sql(revisions)


# -- whose connection, whose transaction ------------------------------------------------------------------------------


def open_psycopg(url: str) -> Any:
    return psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.RawCursor, prepare_threshold=0)


def open_sqlalchemy(url: str) -> Any:
    return sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).connect()


@pytest.mark.parametrize("connect", [open_psycopg, open_sqlalchemy])
def test_an_open_connections_transaction_is_joined(url: str, connect: Callable[[str], Any]) -> None:
    with connect(url) as connection:
        migrate.up(connection)
        assert migrate.current(connection) == migrate.head()
        connection.rollback()
        assert migrate.current(connection) is None
        migrate.up(connection)
        connection.commit()
        migrate.down(connection)
        migrate.up(connection)
    assert migrate.check(url) == migrate.head()


def open_autocommit_psycopg(url: str) -> Any:
    return psycopg.connect(url, autocommit=True)


def open_autocommit_sqlalchemy(url: str) -> Any:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    return engine.connect()


@pytest.mark.parametrize("connect", [open_autocommit_psycopg, open_autocommit_sqlalchemy])
def test_an_autocommit_connection_gets_one_transaction(
    empty_db: Database, url: str, connect: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(url) as connection:
        with monkeypatch.context() as patch, pytest.raises(FenceError):
            break_the_last_file(patch)
            migrate.up(connection)
        assert identities(catalog(empty_db)) == set()
        migrate.up(connection)
        assert migrate.check(url) == migrate.head()


def break_the_last_file(patch: pytest.MonkeyPatch) -> None:
    """Make the last file of a revision fail."""
    files = _resources.sql_files
    patch.setattr(_resources, "sql_files", lambda directory: [*files(directory), _broken(files(directory)[0])])


def _broken(path: Path) -> Path:
    class Broken(type(path)):  # type: ignore[misc]
        def read_bytes(self) -> bytes:
            return b"select 1/0;"

    return Broken(path)


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "engine", "keywords"])
def test_other_ways_to_name_a_database(empty_db: Database, url: str, driver: str) -> None:
    sqlalchemy_url = url.replace("postgresql:", "postgresql+psycopg:")
    target: migrate.Target = sqlalchemy_url
    if driver == "engine":
        target = sqlalchemy.create_engine(sqlalchemy_url)
    elif driver == "keywords":
        parts = psycopg.conninfo.conninfo_to_dict(url)
        target = " ".join(f"{key}={value}" for key, value in parts.items())
    migrate.up(target)
    assert migrate.check(url) == migrate.head()


def test_the_callers_settings_are_put_back(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = pg_temp, public")
        migrate.up(connection)
        assert connection.execute("show search_path").fetchone() == ("pg_temp, public",)


def test_up_from_inside_somebody_elses_migration(empty_db: Database, url: str, tmp_path: Path) -> None:
    import alembic.command
    from alembic.config import Config

    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(
        "import sqlalchemy\n"
        "from alembic import context\n"
        "engine = sqlalchemy.create_engine(context.config.get_main_option('sqlalchemy.url'))\n"
        "with engine.begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    context.run_migrations()\n"
        "    assert context.get_context().get_current_heads() == ('a1',)\n"
    )
    (tmp_path / "versions" / "a1.py").write_text(
        "from alembic import op\n"
        "from pyfence import migrate\n"
        "revision, down_revision = 'a1', None\n"
        "def upgrade():\n"
        "    migrate.up(op.get_bind())\n"
        "    op.execute('create table theirs (id integer)')\n"
    )
    empty_db.execute("grant create on schema public to fence_owner", user=SUPERUSER)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("sqlalchemy.url", url.replace("postgresql:", "postgresql+psycopg:"))
    alembic.command.upgrade(config, "head")
    assert migrate.check(url) == migrate.head()
    assert empty_db.execute("select to_regclass('public.theirs') is not null") == [(True,)]


def test_silence(url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    migrate.up(url)
    migrate.check(url)
    migrate.sql()
    migrate.down(url)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "bad",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/d",
        f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d",
        f"postgresql:/u:{SECRET}@127.0.0.1/d",
        f"postgresql://u:{SECRET}/x@127.0.0.1/d",
        f"postgresql://u:x/{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:x@{SECRET}@127.0.0.1/d",
        f"postgresql://u:x?{SECRET}@127.0.0.1/d",
        f"postgresql+psycopg://u:{SECRET}/x@127.0.0.1/d",
        f"postgresql+psycopg://u:x@127.0.0.1:{SECRET}/d",
        f"postgresql://u:%zz{SECRET}@127.0.0.1/d",
        f"host=127.0.0.1 password={SECRET} nonsense",
        f"{SECRET}",
        f"mysql://u:{SECRET}@127.0.0.1/d",
    ],
)
@pytest.mark.parametrize("call", [migrate.up, migrate.current, migrate.check, migrate.stamp, migrate.down])
def test_no_error_shows_the_password(bad: str, call: Callable[[str], object]) -> None:
    with pytest.raises(FenceError) as failed:
        call(bad)
    error: BaseException | None = failed.value
    while error is not None:
        assert SECRET not in str(error)
        assert SECRET not in repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("target", [None, 1, b"postgresql://", object()])
def test_a_target_of_another_type(target: Any) -> None:
    with pytest.raises(BadArgument):
        migrate.up(target)
