"""Who may do what: nothing for everybody, its own for each kind of role, pyfence's tables for its functions alone."""

from __future__ import annotations

from typing import Any

import pytest
from guards.scene import Lease, acquire, check_refusal, contents, expire, present, protect
from harness import FENCE_RIGHTS, Database, sqlstate
from psycopg.types.json import Jsonb

FUNCTIONS = """
    select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = 'fence'::regnamespace and has_function_privilege(%s, p.oid, 'execute')
"""
RELATIONS = """
    select c.oid::regclass::text || ' ' || privilege from pg_class c
    cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) privilege
    where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'v', 'p', 'm')
      and has_table_privilege(%s, c.oid, privilege)
"""
TABLES = ["_authority", "_lease", "_guard", "_history"]


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, owner name, body text)")
    db.execute("insert into public.report values (1, 'app', 'old'), (2, 'nobody', 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


@pytest.fixture
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1")


def rights(db: Database, role: str) -> set[str]:
    found = db.execute(FUNCTIONS, (role,)) + db.execute(RELATIONS, (role,))
    return {name for (name,) in found}


def granted(db: Database, kinds: tuple[str, ...]) -> set[str]:
    """What fence._role_grants says the kinds get."""
    names = set()
    for kind in kinds:
        for (statement,) in db.execute("select fence._role_grants('app', %s)", (kind,), user="fence_owner"):
            if statement.startswith("grant execute on function "):
                names.add(statement.removeprefix("grant execute on function ").removesuffix(" to app"))
            elif statement.startswith("grant select on fence."):
                names.add(statement.removeprefix("grant select on ").removesuffix(" to app") + " select")
            else:
                assert statement == "grant usage on schema fence to app"
    return names


def test_everybody_has_no_right_at_all(db: Database, report: str) -> None:
    assert rights(db, "outsider") == set()
    assert db.execute("select has_schema_privilege('outsider', 'fence', 'usage, create')") == [(False,)]
    public = db.execute(
        """
        select p.oid::regprocedure::text from pg_proc p
        cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.pronamespace = 'fence'::regnamespace and a.grantee = 0
        union all
        select c.oid::regclass::text from pg_class c
        cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
        where c.relnamespace = 'fence'::regnamespace and a.grantee = 0
        """
    )
    assert public == []


@pytest.mark.parametrize("role", ["app", "app_owner", "monitor"])
def test_each_kind_gets_exactly_what_the_list_says(db: Database, report: str, role: str) -> None:
    held = rights(db, role)
    if role == "app_owner":
        held = {name for name in held if not name.startswith("fence._guard_1(")}
    assert held == granted(db, FENCE_RIGHTS[role])
    assert not [name for name in held if name.startswith("fence._") and not name.endswith(")")], "no table"


@pytest.mark.parametrize("kind", [None, "", "owner", "CLIENT"])
def test_there_are_three_kinds(db: Database, kind: str | None) -> None:
    with sqlstate("LF010") as refused:
        db.execute("select fence._role_grants('app', %s)", (kind,), user="fence_owner")
    check_refusal(refused.diag)


def test_every_kind_can_use_what_it_gets(db: Database, report: str) -> None:
    """Views and invoker functions call private functions with their caller's rights."""
    db.execute("create table public.txt (k text primary key)")
    protect(db, "public.txt", "txt:{k}")
    for user in ("app", "app_owner", "monitor"):
        assert db.execute("select fence.resource_for('public.txt', %s)", (Jsonb({"k": "a:b"}),), user=user) == [
            ("txt:a%3Ab",)
        ]
        assert db.execute("select fence.resource_name('t:{k}', %s)", (Jsonb({"k": "a"}),), user=user) == [("t:a",)]
    for user in ("app_owner", "monitor"):
        for view in ("leases", "history", "protected_tables"):
            db.execute(f"select * from fence.{view}", user=user)
    for view in ("leases", "history", "protected_tables"):
        with sqlstate("42501"):
            db.execute(f"select * from fence.{view}", user="app")


@pytest.mark.parametrize("user", ["app", "monitor", "app_owner", "outsider"])
@pytest.mark.parametrize("table", TABLES)
def test_nobody_touches_pyfences_tables(db: Database, lease: Lease, user: str, table: str) -> None:
    for statement in (
        f"select * from fence.{table}",
        f"select 1 from fence.{table} for update",
        f"select 1 from fence.{table} for key share",
        f"insert into fence.{table} default values",
        f"delete from fence.{table}",
        f"truncate fence.{table}",
        f"do $$ begin lock table fence.{table}; end $$",
        f"create trigger evil before update on fence.{table} for each row "
        "execute function suppress_redundant_updates_trigger()",
    ):
        with sqlstate("42501"):
            db.execute(statement, user=user)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("who", ["pg_write_all_data", "superuser", "superuser as replica"])
def test_rights_on_all_tables_are_no_rights_on_these(db: Database, lease: Lease, table: str, who: str) -> None:
    ((column,),) = db.execute(
        "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 and attidentity = '' "
        "and attgenerated = '' order by attnum limit 1",
        (f"fence.{table}",),
        user="postgres",
    )
    before = db.execute(f"select * from fence.{table} order by 1", user="fence_owner")
    user, options = "postgres", ""
    if who == "pg_write_all_data":
        db.execute("grant pg_write_all_data, pg_read_all_data to outsider", user="postgres")
        user = "outsider"
    elif who.endswith("replica"):
        options = "-c session_replication_role=replica"
    try:
        connection = db.connect(user, autocommit=True, options=options)
        for statement in (
            f"update fence.{table} set {column} = {column}",
            f"delete from fence.{table}",
            f"insert into fence.{table} ({column}) select {column} from fence.{table}",
            f"truncate fence.{table}",
        ):
            with sqlstate("42501"):
                connection.execute(statement)
    finally:
        db.execute("revoke pg_write_all_data, pg_read_all_data from outsider", user="postgres")
    assert db.execute(f"select * from fence.{table} order by 1", user="fence_owner") == before


def test_not_even_the_schemas_owner_lowers_a_token(db: Database, lease: Lease) -> None:
    for statement in (
        "update fence._lease set token = token - 1",
        "update fence._lease set resource = 'report:2'",
        "delete from fence._lease",
        "truncate fence._lease",
    ):
        with sqlstate("42501") as refused:
            db.execute(statement, user="fence_owner")
        check_refusal(refused.diag, schema="fence", table="_lease")
    expire(db, "report:1")
    assert acquire(db, "report:1").token > lease.token


def test_the_application_needs_no_right_but_its_own(db: Database, lease: Lease) -> None:
    """No CREATE anywhere, nothing on pyfence's tables: the fenced write works, session_user is who is recorded."""
    db.execute("revoke create on schema public from public", user="postgres")
    connection = db.connect("app")
    present(connection, lease)
    assert connection.execute("update public.report set body = 'new' where id = 1").rowcount == 1
    assert db.execute("select role, owner from fence.history where event = 'granted'") == [("app", "tester")]
    assert db.execute("select owner from fence.acquire('report:2')", user="app") == [("app",)]


@pytest.mark.parametrize(
    "call", ["revoke('report:1', 'x')", "protect('public.report', 'x')", "unprotect('public.report')"]
)
@pytest.mark.parametrize("user", ["app", "monitor", "outsider"])
def test_administration_is_for_administrators(db: Database, lease: Lease, user: str, call: str) -> None:
    with sqlstate("42501"):
        db.execute(f"select fence.{call}", user=user)


def test_every_function_has_a_pinned_path_or_qualifies_every_name(db: Database, report: str) -> None:
    """A definer without a pinned path would look names up in its caller's schemas."""
    rows: list[Any] = db.execute(
        "select proname::text, prosecdef, coalesce(array_to_string(proconfig, ';'), '') from pg_proc "
        "where pronamespace = 'fence'::regnamespace"
    )
    for name, definer, config in rows:
        if definer:
            assert "search_path=pg_catalog, pg_temp" in config, name


# -- fenced_update is its caller ---------------------------------------------------------------------------------------

FENCED = "select fence.fenced_update('public.report', %s, %s, %s, %s, %s)"


def fenced_update(db: Database, lease: Lease, changes: dict[str, Any], user: str = "app", key: int = 1) -> int:
    parameters = (Jsonb({"id": key}), Jsonb(changes), *lease.parameters)
    return int(db.execute(FENCED, parameters, user=user)[0][0])


def test_fenced_update_has_its_callers_grants(db: Database, lease: Lease) -> None:
    assert fenced_update(db, lease, {"body": "new"}) == 1
    db.execute("revoke update on public.report from app")
    before = contents(db, "public.report")
    with sqlstate("42501"):
        fenced_update(db, lease, {"body": "newer"})
    db.execute("grant update (body) on public.report to app")
    assert fenced_update(db, lease, {"body": "newest"}) == 1
    with sqlstate("42501"):
        fenced_update(db, lease, {"owner": "me"})
    db.execute("revoke select on public.report from app")
    with sqlstate("42501"):
        fenced_update(db, lease, {"body": "unseen"})
    assert len(contents(db, "public.report")) == len(before)
    with sqlstate("42501"):
        fenced_update(db, lease, {"body": "x"}, user="outsider")


def test_fenced_update_sees_its_callers_rows(db: Database, lease: Lease) -> None:
    db.execute("alter table public.report enable row level security")
    db.execute("create policy own on public.report using (owner = current_user) with check (owner = current_user)")
    two = acquire(db, "report:2")
    assert fenced_update(db, lease, {"body": "new"}) == 1
    assert fenced_update(db, two, {"body": "new"}, key=2) == 0
    with sqlstate("42501"):
        fenced_update(db, lease, {"owner": "outsider"})
    assert contents(db, "public.report") == [(1, "app", "new"), (2, "nobody", "old")]
