"""`upgrade head` equals sql/, online and as a script; and the comparison notices every kind of difference."""

from __future__ import annotations

import io
from collections.abc import Callable

import alembic.command
import psycopg
import pytest
from alembic.config import Config
from harness import SUPERUSER, Database
from migrations.catalog import differences, identities, snapshot

from pyfence import _resources, migrate

from .conftest import catalog, install_from


def test_upgrade_head_equals_sql(empty_db: Database, other_db: Database) -> None:
    migrate.up(empty_db.url("fence_owner"))
    install_from(_resources.sql_dir(), other_db.url("fence_owner"))
    assert differences(catalog(empty_db, version_table=False), catalog(other_db)) == []


def test_every_object_of_sql_is_seen_and_owned_by_the_installer(empty_db: Database) -> None:
    migrate.up(empty_db.url("fence_owner"))
    found = catalog(empty_db)
    names = {identity.split("(")[0] for identity in identities(found)}
    public = {f"function fence.{path.stem}" for path in (_resources.sql_dir() / "20_functions").glob("*.sql")}
    assert public
    assert public <= names
    assert {value for key, value in found.items() if key.endswith(": owner")} == {"fence_owner"}


def test_public_gets_nothing(empty_db: Database) -> None:
    migrate.up(empty_db.url("fence_owner"))
    # A type's name is no secret and gives no access; everything else is for roles that were given it.
    open_to_all = [key for key in catalog(empty_db) if ": public may" in key and not key.startswith("type ")]
    assert open_to_all == []


def test_script_equals_online(empty_db: Database, other_db: Database, psql: Callable[..., str]) -> None:
    migrate.up(empty_db.url("fence_owner"))
    psql(other_db.url("fence_owner"), migrate.sql("base:head"))
    assert differences(catalog(empty_db), catalog(other_db)) == []
    assert migrate.check(other_db.url("fence_owner")) == migrate.head()


def test_alembic_itself_equals_online(empty_db: Database, other_db: Database) -> None:
    migrate.up(empty_db.url("fence_owner"))
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(_resources.migrations_dir()))
    config.set_main_option("sqlalchemy.url", other_db.url("fence_owner").replace("%", "%%"))
    alembic.command.upgrade(config, "head")
    assert differences(catalog(empty_db), catalog(other_db)) == []


def test_scripts_hold_the_frozen_files_verbatim() -> None:
    script = migrate.sql()
    for path in _resources.sql_files(_resources.frozen_dir() / "0001" / "up"):
        assert path.read_text("utf-8").rstrip() in script


# -- the comparison itself: one change of each kind, made by a superuser to a migrated database ------------------------

CHANGES = {
    "function body": (
        "create or replace function fence.schema_version() returns text language sql immutable as $$ select 'other' $$",
        "function fence.schema_version(): definition",
    ),
    "function setting": (
        "alter function fence.schema_version() set search_path = public",
        "function fence.schema_version(): definition",
    ),
    "function option": (
        "alter function fence.schema_version() security definer",
        "function fence.schema_version(): definition",
    ),
    "grant on a function": (
        "grant execute on function fence.schema_version() to outsider",
        "function fence.schema_version(): outsider may EXECUTE",
    ),
    "grant to public": (
        "grant execute on function fence.schema_version() to public",
        "function fence.schema_version(): public may EXECUTE",
    ),
    "grant on a table": ("grant select on fence._lease to app", "table fence._lease: app may SELECT"),
    "grant on a column": ("grant select (token) on fence._lease to app", "column fence._lease token: privileges"),
    "grant on the schema": ("grant usage on schema fence to outsider", "schema fence: outsider may USAGE"),
    "default privileges": (
        "alter default privileges in schema fence grant select on tables to app",
        "default privileges fence r of postgres: acl",
    ),
    "comment on a function": (
        "comment on function fence.schema_version() is 'other'",
        "function fence.schema_version(): comment",
    ),
    "comment on a column": ("comment on column fence._lease.token is 'other'", "column fence._lease token: comment"),
    "comment on a table": ("comment on table fence._lease is null", "table fence._lease: comment"),
    "owner of a function": (
        "alter function fence.schema_version() owner to app_owner",
        "function fence.schema_version(): owner",
    ),
    "owner of a table": ("alter table fence._history owner to app_owner", "table fence._history: owner"),
    "trigger disabled": (
        "alter table fence._lease disable trigger own_tables_guard",
        "trigger fence._lease own_tables_guard: enabled",
    ),
    "trigger origin only": (
        "alter table fence._lease enable trigger own_tables_guard",
        "trigger fence._lease own_tables_guard: enabled",
    ),
    "trigger dropped": (
        "drop trigger token_only_grows on fence._lease",
        "trigger fence._lease token_only_grows: definition",
    ),
    "trigger renamed": (
        "alter trigger token_only_grows on fence._lease rename to other",
        "trigger fence._lease other: exists",
    ),
    "constraint": (
        "alter table fence._lease drop constraint _lease_resource_token_key",
        "constraint fence._lease _lease_resource_token_key: definition",
    ),
    "index": ("create index other on fence._lease (owner)", "index fence.other: definition"),
    "reloptions": ("alter table fence._lease set (fillfactor = 90)", "table fence._lease: storage"),
    "row security": ("alter table fence._lease enable row level security", "table fence._lease: storage"),
    "column added": ("alter table fence._lease add other integer", "column fence._lease other: definition"),
    "column type": (
        "drop view fence.history; alter table fence._history alter role type varchar",
        "column fence._history role: definition",
    ),
    "column default": (
        "alter table fence._lease alter ttl set default '1 s'",
        "column fence._lease ttl: definition",
    ),
    "not null": (
        "alter table fence._lease alter owner drop not null",
        "column fence._lease owner: definition",
    ),
    "collation": (
        'drop view fence.history; alter table fence._history alter resource type text collate "POSIX"',
        "column fence._history resource: definition",
    ),
    "identity": (
        "alter table fence._history alter id set generated by default",
        "column fence._history id: definition",
    ),
    "sequence": ("alter sequence fence._history_id_seq increment by 2", "sequence fence._history_id_seq: definition"),
    "view": (
        "create or replace view fence.history as select * from fence._history where false",
        "view fence.history: definition",
    ),
    "view option": ("alter view fence.history set (security_barrier)", "view fence.history: storage"),
    "type": ("create type fence.other as enum ('a')", "type fence.other: definition"),
    "policy": ("create policy other on fence._lease", "policy fence._lease other: definition"),
    "rule": ("create rule other as on update to fence._lease do nothing", "rule fence._lease other: definition"),
    "trigger on another table": (
        "create table public.t (); create trigger other before insert on public.t"
        " execute function fence._own_tables_guard()",
        "trigger public.t other: definition",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_comparison_notices(db: Database, change: str) -> None:
    statement, expected = CHANGES[change]
    with psycopg.connect(db.url(SUPERUSER)) as connection:
        before = snapshot(connection)
        assert differences(before, snapshot(connection)) == []
        connection.execute(statement, prepare=False)
        changed = [entry.split("\n")[0] for entry in differences(before, snapshot(connection))]
        assert expected in changed
        connection.rollback()
        assert differences(before, snapshot(connection)) == []
