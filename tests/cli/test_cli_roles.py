"""`pyfence role add`: executed and as a script for a DBA."""

from __future__ import annotations

import psycopg
import pytest
from cli.command import CommandLine
from harness import Database, sqlstate

KINDS = ("client", "admin", "monitor")


def grants(db: Database, role: str) -> set[str]:
    """What a role itself was granted in schema fence."""
    rows = db.execute(
        """
        select n.nspname || ' ' || a.privilege_type from pg_namespace n, aclexplode(n.nspacl) a
         where n.nspname = 'fence' and a.grantee::regrole::text = %(role)s
        union select p.oid::regprocedure || ' ' || a.privilege_type from pg_proc p, aclexplode(p.proacl) a
         where p.pronamespace = 'fence'::regnamespace and a.grantee::regrole::text = %(role)s
        union select c.oid::regclass || ' ' || a.privilege_type from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = 'fence'::regnamespace and a.grantee::regrole::text = %(role)s
        """,
        {"role": role},
        user="postgres",
    )
    return {text for (text,) in rows}


@pytest.fixture
def owner(db: Database) -> CommandLine:
    """The command line as the owner of schema fence."""
    return CommandLine(db.url("fence_owner"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_script_grants_what_the_command_grants(db: Database, owner: CommandLine, kind: str) -> None:
    script = owner("role", "add", "outsider", "--as", kind, "--sql").out
    assert grants(db, "outsider") == set(), "--sql changes nothing"
    with psycopg.connect(db.url("fence_owner")) as connection:
        connection.execute(script.encode(), prepare=False)
        connection.commit()
        by_script = grants(db, "outsider")
        for statement in script.splitlines():
            connection.execute(statement.replace("grant", "revoke", 1).replace(" to ", " from ").encode())
    assert by_script
    assert grants(db, "outsider") == set()

    done = owner("role", "add", "outsider", "--as", kind)
    assert done.out == ""
    assert grants(db, "outsider") == by_script
    assert owner("role", "add", "outsider", "--as", kind).code == 0, "again is no error"


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_gets_nothing_private_that_writes(db: Database, owner: CommandLine, kind: str) -> None:
    owner("role", "add", "outsider", "--as", kind)
    private = {
        grant for grant in grants(db, "outsider") if grant.startswith("fence._") and not grant.endswith("EXECUTE")
    }
    assert private == set()


def test_in_json_the_statements_are_listed(owner: CommandLine) -> None:
    planned = owner("role", "add", "outsider", "--as", "client", "--sql", "--json").json
    assert (planned["role"], planned["kind"], planned["executed"]) == ("outsider", "client", False)
    assert all(statement.startswith("grant ") for statement in planned["statements"])
    assert owner("role", "add", "outsider", "--as", "client", "--json").json == {**planned, "executed": True}


def test_a_client_can_work_and_no_more(db: Database, owner: CommandLine) -> None:
    owner("role", "add", "outsider", "--as", "client")
    assert db.execute("select granted from fence.acquire('x')", user="outsider") == [(True,)]
    assert CommandLine(db.url("outsider"))("leases", "--json", code=1).error["code"] == "42501"


def test_an_odd_name_is_quoted(db: Database, owner: CommandLine) -> None:
    name = f'"O\'Brien; ""{db.name}"" Größe"'
    db.execute(f"create role {name}", user="postgres")
    try:
        script = owner("role", "add", name, "--as", "monitor", "--sql").out
        assert f"grant usage on schema fence to {name};" in script.splitlines()
        assert owner("role", "add", name, "--as", "monitor", "--json").json["role"] == name
        assert grants(db, name)
    finally:
        db.execute(f"drop owned by {name}; drop role {name}", user="postgres")


@pytest.mark.parametrize("sql", [[], ["--sql"]])
def test_a_role_must_exist(owner: CommandLine, sql: list[str]) -> None:
    refused = owner("role", "add", "nobody_at_all", "--as", "client", *sql, code=1)
    assert refused.out == ""
    assert "nobody_at_all" in refused.err
    assert "create role" in refused.err
    assert owner("role", "add", "nobody_at_all", "--as", "client", "--json", code=1).error["code"] == "42704"


@pytest.mark.parametrize("role", ["10", "-", ""])
def test_a_number_is_no_role(owner: CommandLine, role: str) -> None:
    assert owner("role", "add", "--as", "client", "--", role, code=2).out == ""


def test_public_is_no_role(owner: CommandLine) -> None:
    assert owner("role", "add", "public", "--as", "client", code=1).out == ""


def test_the_kind_is_needed_and_one_of_three(owner: CommandLine) -> None:
    assert owner("role", "add", "app", code=2).out == ""
    assert owner("role", "add", "app", "--as", "god", code=2).out == ""


def test_only_the_owner_may(cli: CommandLine, db: Database) -> None:
    error = cli("role", "add", "outsider", "--as", "client", "--json", code=1).error
    assert error["code"] == "42501"
    assert "owner of schema fence" in error["hint"]
    assert grants(db, "outsider") == set()


def test_a_grant_that_grants_nothing_is_a_failure(cli: CommandLine, db: Database) -> None:
    # To the server this is a mere warning: app_owner holds the rights, but not the right to pass them on.
    db.execute("grant execute on function fence._role_grants(regrole, text) to app_owner", user="fence_owner")
    refused = cli("role", "add", "outsider", "--as", "admin", code=1)
    assert "owner of schema fence" in refused.err
    assert grants(db, "outsider") == set()


# -- which names a role may acquire ----------------------------------------------------------------------------------


def test_a_rule_is_made_changed_and_taken_away(cli: CommandLine, db: Database) -> None:
    rules = "select pattern, max_leases from fence.allowances where role = 'app'"
    assert cli("role", "allow", "app", "job:*", "--max", "1", "--json").json == {
        "role": "app",
        "pattern": "job:*",
        "max_leases": 1,
    }
    assert db.execute(rules) == [("job:*", 1)]
    with sqlstate("42501"):
        db.execute("select fence.acquire('report:1')", user="app")
    assert "any number" in cli("role", "allow", "app", "job:*").err
    assert db.execute(rules) == [("job:*", None)]
    cli("role", "allow", "app", "job:*", "--max", "0")
    assert db.execute(rules) == []
    db.execute("select fence.acquire('report:1')", user="app")


@pytest.mark.parametrize(
    "arguments", [("app",), ("app", ""), ("app", "x", "--max", "-1"), ("app", "x", "--max", "1.5")]
)
def test_a_rule_needs_a_pattern_and_a_number(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    assert cli("role", "allow", *arguments, code=2).out == ""


def test_a_rule_is_an_administrators(cli: CommandLine, db: Database) -> None:
    assert CommandLine(db.url("monitor"))("role", "allow", "app", "x", "--json", code=1).error["code"] == "42501"
    assert cli("role", "allow", "nobody_at_all", "x", "--json", code=1).error["code"] == "42704"
    assert cli("role", "allow", "app", "x", "--max", "0", "--json", code=1).error["code"] == "LF010"
