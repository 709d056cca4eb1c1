"""`pyfence uninstall`: what it refuses, whose rights it takes, and what it leaves."""

from __future__ import annotations

import pytest
from cli.command import CommandLine
from harness import SUPERUSER, Database


def there(db: Database) -> bool:
    return db.execute("select to_regnamespace('fence') is not null") == [(True,)]


@pytest.fixture
def owner(db: Database) -> CommandLine:
    return CommandLine(db.url("fence_owner"))


def test_it_is_said_twice(owner: CommandLine, db: Database) -> None:
    assert "--yes" in owner("uninstall", code=2).err
    assert owner("uninstall", "--json", code=2).error["code"] == "usage"
    assert there(db)
    assert owner("uninstall", "--yes", "--json").json == {"unprotected": [], "schema_dropped": True}
    assert not there(db)
    assert owner("uninstall", "--yes", "--json", code=1).error["code"] == "LF011"


def test_after_a_downgrade_the_rest_goes_too(owner: CommandLine, db: Database) -> None:
    owner("migrate", "down")
    assert there(db)
    owner("uninstall", "--yes")
    assert not there(db)


def test_guards_go_only_when_told_and_only_by_their_tables_owner(owner: CommandLine, db: Database) -> None:
    db.execute("create table public.t (id int primary key); select fence.protect('public.t', 't:{id}')")
    assert "1 table is protected: public.t" in owner("uninstall", "--yes", "--json", code=1).error["message"]
    assert owner("uninstall", "--yes", "--unprotect", "--json", code=1).error["code"] == "42501"
    assert db.execute("select armed from fence.protected_tables") == [(True,)]
    admin = CommandLine(db.url("app_owner"))
    assert admin("uninstall", "--yes", "--unprotect", "--json", code=1).error["code"] == "42501"
    assert db.execute("select armed from fence.protected_tables") == [(True,)]
    done = CommandLine(db.url(SUPERUSER))("uninstall", "--yes", "--unprotect")
    assert "public.t is no longer protected" in done.err
    assert not there(db)
    db.execute("insert into public.t values (1)", user="outsider")


def test_what_a_user_put_there_stops_it(owner: CommandLine, db: Database) -> None:
    db.execute("create table fence.mine ()", user="fence_owner")
    owner("uninstall", "--yes", "--json", code=1)
    assert db.execute("select count(*) from fence.leases") == [(0,)]


def test_a_schema_of_somebody_elses_stays_empty(owner: CommandLine, db: Database) -> None:
    db.execute(f"alter schema fence owner to {SUPERUSER}; grant all on schema fence to fence_owner", user=SUPERUSER)
    assert owner("uninstall", "--yes", "--json").json["schema_dropped"] is False
    assert there(db)
    assert db.execute("select from pg_class where relnamespace = 'fence'::regnamespace") == []
