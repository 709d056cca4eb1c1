"""docs/dba/permissions.md says who may do what: compared with the catalog, object by object and role by role."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from harness import SUPERUSER, Database

PAGE = Path(__file__).parents[2] / "docs" / "dba" / "permissions.md"
BEGIN, END = "<!-- rights: begin -->\n", "<!-- rights: end -->\n"
KINDS = {"client": "app", "admin": "outsider", "monitor": "monitor"}

#: Every object of the schema and what a role has on it. No private sequence is anybody's.
RIGHTS = """
    select 'fence.' || p.proname || '()', 'execute'
    from pg_proc p
    where p.pronamespace = 'fence'::regnamespace and p.proname !~ '^_guard_[0-9]+$'
      and has_function_privilege(%(role)s, p.oid, 'execute')
    union all
    select c.oid::regclass::text, privilege
    from pg_class c
    cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) privilege
    where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'v', 'm', 'p', 'f')
      and has_table_privilege(%(role)s, c.oid, privilege)
    union all
    select c.oid::regclass::text, privilege
    from pg_class c cross join unnest(array['usage', 'select', 'update']) privilege
    where c.relnamespace = 'fence'::regnamespace and c.relkind = 'S'
      and has_sequence_privilege(%(role)s, c.oid, privilege)
    union all
    select c.oid::regclass || '.' || a.attname, privilege
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    cross join unnest(array['select', 'insert', 'update', 'references']) privilege
    where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'v')
      and has_column_privilege(%(role)s, c.oid, a.attnum, privilege)
      and not has_table_privilege(%(role)s, c.oid, privilege)
    union all
    select t.oid::regtype::text, 'owner' from pg_type t join pg_roles r on r.oid = t.typowner
    where t.typnamespace = 'fence'::regnamespace and r.rolname = %(role)s
    union all
    select 'schema fence', privilege from unnest(array['usage', 'create']) privilege
    where has_schema_privilege(%(role)s, 'fence', privilege)
"""


def rights(db: Database, role: str) -> set[tuple[str, str]]:
    found = db.execute(RIGHTS, {"role": role}, user=SUPERUSER)
    return {(name, privilege) for name, privilege in found}


@pytest.fixture
def installed(db: Database) -> Database:
    for (statement,) in db.execute("select fence._role_grants('outsider', 'admin')", user="fence_owner"):
        db.execute(statement, user="fence_owner")
    db.execute("create table public.report (id int primary key)")
    db.execute("select fence.protect('public.report', 'report:{id}')")
    return db


def table(db: Database) -> str:
    """The page's table, as it must be: a row for each object that anybody has a right on."""
    held = {kind: rights(db, role) for kind, role in KINDS.items()}
    lines = ["| object | right | " + " | ".join(KINDS) + " |", "|---|---|" + "---|" * len(KINDS)]
    for name, privilege in sorted(set.union(*held.values()), key=lambda row: (row[0].startswith("fence._"), row)):
        marks = ["yes" if (name, privilege) in held[kind] else "" for kind in KINDS]
        lines.append(f"| `{name}` | {privilege} | {' | '.join(marks)} |")
    return re.sub(r" +\|", " |", "\n".join(lines)) + "\n"


def test_the_page_says_what_each_kind_may(installed: Database) -> None:
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    page = f"{before}{BEGIN}\n{table(installed)}\n{END}{after}"
    if os.environ.get("PYFENCE_WRITE_PAGES"):
        PAGE.write_text(page, "utf-8")
    assert page == PAGE.read_text("utf-8")


def test_only_these_kinds_and_the_tables_owner_have_any_right(installed: Database) -> None:
    """PUBLIC, the predefined roles but two, a superuser aside: nothing at all."""
    grantees = installed.execute(
        """
        select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end
        from (
          select proacl, proowner from pg_proc where pronamespace = 'fence'::regnamespace and proname !~ '^_guard_'
          union all select relacl, relowner from pg_class where relnamespace = 'fence'::regnamespace
          union all select nspacl, nspowner from pg_namespace where nspname = 'fence'
          union all
          select attacl, c.relowner from pg_attribute t join pg_class c on c.oid = t.attrelid
          where c.relnamespace = 'fence'::regnamespace) o (acl, owner), aclexplode(o.acl) a
        where a.grantee <> o.owner
        """,
        user=SUPERUSER,
    )
    assert {name for (name,) in grantees} == {*KINDS.values(), "app_owner"}
    predefined = installed.execute("select rolname from pg_roles where rolname like 'pg\\_%%' order by 1", ())
    assert len(predefined) > 10
    having = {name for (name,) in predefined if rights(installed, name)}
    assert having == {"pg_read_all_data", "pg_write_all_data"}


def test_what_the_two_roles_over_all_data_have(installed: Database) -> None:
    """The server gives it on every table there is; what comes of it is in tests/attacks."""
    read, write = (rights(installed, f"pg_{what}_all_data") for what in ("read", "write"))
    assert {privilege for name, privilege in read if name != "schema fence"} == {"select"}
    assert {privilege for name, privilege in write if name != "schema fence"} == {"insert", "update", "delete"}
    assert not [name for name, _ in read | write if name.endswith("()")], "no function"
    assert ("schema fence", "create") not in read | write


def test_no_view_shows_a_secret_or_its_hash(installed: Database) -> None:
    columns = installed.execute(
        "select c.relname::text, a.attname::text, a.atttypid::regtype::text from pg_class c"
        " join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
        " where c.relnamespace = 'fence'::regnamespace and c.relkind = 'v'",
        user=SUPERUSER,
    )
    assert len(columns) > 50
    assert [row for row in columns if "secret" in row[1] or "hash" in row[1] or row[2] == "bytea"] == []
    [(token, secret)] = installed.execute("select token, secret from fence.acquire('report:1')", user="app")
    [(digest,)] = installed.execute("select sha256(%s)::text", (secret.encode(),))
    for (view,) in installed.execute(
        "select oid::regclass::text from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'v'"
        " and has_table_privilege('monitor', oid, 'select')",
        user=SUPERUSER,
    ):
        for (row,) in installed.execute(f"select v::text from {view} v", user="monitor"):
            assert secret not in row
            assert digest not in row
            assert digest.removeprefix("\\x") not in row
    assert str(token) in str(installed.execute("select * from fence.leases", user="monitor"))
