"""SQL in every argument of every public function: no SQL runs, no secret comes out, and every refusal has its code."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, protect
from harness import SUPERUSER, Connection, Database, sqlstate
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

#: Each calls public.pwned(), which says so aloud, wherever it is taken for SQL: as an expression, after a quote of any
#: kind, in a format string, in a regular expression's replacement, as a name.
CALL = "public.pwned()"
BREAKOUTS = [
    CALL,
    f"'||{CALL}||'",
    f"' or {CALL} is null --",
    f"\\' or {CALL} is null --",
    f'" or {CALL} is null --',
    f"$$ || {CALL} || $$",
    f"$source$ || {CALL} || $source$",
    f"$pyfence$; select {CALL}; --",
    f"); select {CALL}; --",
    f"'; select {CALL}; --",
    f"%I%L%s%1$s' || {CALL} || '",
    f"*/ select {CALL} /*",
    f"x') is null or {CALL} is not null or (''='",
    f"{{id}}' || {CALL} || '",
    f'{{id" || {CALL} || "}}',
    "%s", "{id}", "{{id}}", "{@table}", "{", "}", "report:{id}", "{id}{id}", "{no such column}",
    "public.report", "pg_catalog.pg_class", "fence._lease", '"report"', "report.id", "16384", "-", "public",
]  # fmt: skip
ODD = [
    "", " ", "\n", "\t", "\\", "%", "*", "***:", "(?i)", "((((((((", "[", "\\y", "\u2028", "\u202e", "é", "\U0001f600",
    "a" * 1024, "a" * 1025, "'" * 600, "NaN", "infinity", "null", "-1", "1e309", "on", "auto", "enforce", "observe",
]  # fmt: skip
TEXT = st.sampled_from(BREAKOUTS + ODD) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**53, 2**63 - 1, -(2**63)])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT | st.just("id"), inner, max_size=3),
    max_leaves=4,
)
LENGTHS = ["30 s", "0", "-1 s", "1 year", "178000000 years", "5 days ago", CALL]
MOMENTS = ["tomorrow", "infinity", "-infinity", "2000-01-01", CALL]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "name": TEXT,
    "regclass": TEXT | st.just("public.report"),
    "regrole": TEXT | st.sampled_from(["app", "outsider", "pg_monitor"]),
    "bigint": NUMBERS,
    "integer": NUMBERS,
    "boolean": st.booleans(),
    "jsonb": JSON,
    "interval": st.sampled_from(LENGTHS) | TEXT,
    "timestamp with time zone": st.sampled_from(MOMENTS) | TEXT,
    "text[]": st.lists(TEXT | st.none(), max_size=3),
    "bigint[]": st.lists(NUMBERS | st.none(), max_size=3),
}
#: What a call may answer: pyfence's own codes, a value or a name the server cannot read (3F000 and 0A000 are of names
#: with too many parts), a right or a lease too many.
ALLOWED = re.compile(r"LF0(?:0[1-9]|1[0-3])|22...|42...|3F000|0A000|53400|55P03")

FUNCTIONS = """
    select p.proname::text, array(select t::regtype::text from unnest(p.proargtypes) t)
    from pg_proc p
    where p.pronamespace = 'fence'::regnamespace and p.proname !~ '^_' and p.pronargs > 0
    order by 1
"""
#: Everything there is, but what guards are made of: no call may add to it or take from it.
OBJECTS = """
    select count(*) filter (where c.relnamespace <> 'fence'::regnamespace), count(*) from pg_class c
    union all select count(*) filter (where p.proname !~ '^_guard_'), 0 from pg_proc p
    union all select count(*), 0 from pg_namespace
    union all select count(*), 0 from pg_roles
    union all select count(*), 0 from pg_type t where t.typnamespace = 'public'::regnamespace
    union all select count(*), 0 from pg_auth_members
"""


class Target:
    """A database with a canary, and a session of a role that may call every function."""

    def __init__(self, db: Database) -> None:
        self.connection: Connection = db.connect("app_owner", search_path="public")
        self.lease: Lease = acquire(db, "report:1")
        self.heard: list[str] = []
        self.connection.add_notice_handler(lambda diag: self.heard.append(str(diag.message_primary)))
        self.functions: dict[str, list[str]] = dict(db.execute(FUNCTIONS))
        self.before = self.connection.execute(OBJECTS).fetchall()
        self.connection.commit()

    def call(self, name: str, arguments: list[Any]) -> str | None:
        """Call a function in a transaction that is rolled back; the code it raised, None for none."""
        casts = zip(arguments, self.functions[name], strict=False)
        literals = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(Jsonb(value) if kind == "jsonb" else value), sql.SQL(kind))
            for value, kind in casts
        )
        statement = sql.SQL("select * from fence.{}({})").format(sql.Identifier(name), literals)
        try:
            self.connection.execute("set local statement_timeout = '20s'")
            self.connection.execute(statement)
            assert self.connection.execute(OBJECTS).fetchall() == self.before, statement.as_string(None)
        except psycopg.Error as refused:
            said = [str(value) for value in vars(refused).values()] + [str(refused)]
            said += [str(getattr(refused.diag, field)) for field in dir(refused.diag) if not field.startswith("_")]
            assert not [text for text in said if self.lease.secret in text]
            return refused.sqlstate
        finally:
            self.connection.rollback()
            assert not [text for text in self.heard if "pwned" in text and "ran as" in text], statement.as_string(None)
        return None


@pytest.fixture
def target(db: Database) -> Target:
    db.execute(
        """
        create function public.pwned() returns text language plpgsql as
        $$ begin raise notice 'pwned: ran as %', current_user; return 'x'; end $$;
        create table public.report (id int primary key, body text);
        insert into public.report values (1, 'old');
        """
    )
    protect(db, "public.report", "report:{id}", p_covering="all reports")
    return Target(db)


def test_the_canary_sings(target: Target) -> None:
    target.connection.execute("do $$ begin execute format('select %s', 'public.pwned()'); end $$")
    assert target.heard == ["pwned: ran as app_owner"]


def test_every_type_of_argument_is_tried(target: Target) -> None:
    kinds = {kind for kinds in target.functions.values() for kind in kinds}
    assert kinds <= VALUES.keys()
    assert len(target.functions) > 20


def fuzz(target: Target, examples: int, *, derandomize: bool) -> None:
    """So many calls with arguments drawn from the corpus."""

    @settings(max_examples=examples, deadline=None, derandomize=derandomize, database=None)
    @given(data=st.data())
    def nothing_is_taken_for_sql(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(target.functions)))
        arguments = [data.draw(st.none() | VALUES[kind]) for kind in target.functions[name]]
        code = target.call(name, arguments)
        assert code is None or ALLOWED.fullmatch(code), (name, arguments, code)

    nothing_is_taken_for_sql()


def test_nothing_in_any_argument_is_taken_for_sql(target: Target) -> None:
    fuzz(target, 100, derandomize=True)


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_nothing_in_any_of_many_arguments_is_taken_for_sql(target: Target) -> None:
    fuzz(target, 4000, derandomize=False)


#: In the default run these; in the long one all.
PAYLOADS = [
    pytest.param(payload, marks=() if number in (1, 4, 6, 10, 13) else pytest.mark.stress, id=str(number))
    for number, payload in enumerate(BREAKOUTS)
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_in_one_argument_of_a_call_that_would_succeed_is_taken_for_sql(target: Target, payload: str) -> None:
    """Past the first checks, to where statements are put together."""
    resource, token, secret = target.lease.parameters
    good: dict[str, list[Any]] = {
        "protect": ["public.report", "report:{id}", "enforce", "reject", "many", "check", "all", None, False],
        "resource_for": ["public.report", {"id": 1}],
        "resource_name": ["report:{id}", {"id": 1}],
        "acquire": ["x", "30 s", "owner"],
        "fenced_update": ["public.report", {"id": 1}, {"body": "new"}, resource, token, secret],
        "allow": ["app", "x*", 1],
        "exempt": ["public.report", "outsider", "tomorrow", "why"],
        "present_all": [[resource], [token], [secret]],
        "set_option": ["need_sync", "off", "why"],
        "set_mode": ["public.report", "observe"],
        "revoke": [resource, "why"],
    }
    for name, arguments in good.items():
        assert target.call(name, arguments) is None, name
        for position, value in enumerate(arguments):
            tried: list[Any] = [payload]
            if isinstance(value, dict):
                tried = [{**value, payload: 1}, {"id": payload}, {payload: payload}, {"id": 1, "body": payload}]
            elif isinstance(value, list):
                tried = [[payload]]
            elif not isinstance(value, str):
                continue
            for bad in tried:
                code = target.call(name, [*arguments[:position], bad, *arguments[position + 1 :]])
                assert code is None or ALLOWED.fullmatch(code), (name, position, bad, code)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_table_and_its_columns_may_have_any_name(db: Database, target: Target, payload: str) -> None:
    """Names come back from the catalog into generated code."""
    schema, table, column = (sql.Identifier(f"{prefix}{payload}"[:60]) for prefix in "stc")
    owner, name = target.connection, sql.Identifier(*schema._obj, *table._obj)
    make = sql.SQL("create schema {} authorization app_owner").format(schema)
    db.connect(SUPERUSER, autocommit=True).execute(make)
    owner.execute(sql.SQL("create table {} ({} text primary key, body text)").format(name, column))
    text, key = name.as_string(None), column._obj[0]
    template = f"x:{{{key}}}"
    refused = None
    try:
        owner.execute("select fence.protect(%s, %s, p_covering => 'all')", (text, template))
    except psycopg.Error as exc:
        refused = exc.sqlstate
    if any(letter in key for letter in "{}"):
        assert refused == "LF010", "braces in a template are its own"
        return
    assert refused is None
    owner.commit()
    insert = sql.SQL("insert into {} values ({})").format(name, sql.Literal(payload))
    with sqlstate("LF004"):
        owner.execute(insert)
    owner.rollback()
    ((resource,),) = owner.execute("select fence.resource_for(%s, %s)", (text, Jsonb({key: payload}))).fetchall()
    lease = acquire(db, resource)
    owner.execute("select fence.present(%s, %s, %s)", lease.parameters)
    owner.execute(insert)
    owner.commit()
    assert owner.execute("select object from fence.audit() where severity = 'error'").fetchall() == []
    owner.execute("select fence.unprotect(%s)", (text,))
    owner.commit()
    assert target.heard == []
