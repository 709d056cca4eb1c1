"""What a caller passes in: checked before anything is sent, and turned into exactly what the database makes of it."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from harness import Database
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

import pyfence
from pyfence import _statements
from pyfence._json import to_json
from pyfence.types import ttl_seconds


class Colour(enum.Enum):
    RED = "r"


class Size(enum.StrEnum):
    BIG = "b"


# -- lengths of time ---------------------------------------------------------------------------------------------------

BAD_TTLS = [
    0,
    -1,
    0.0,
    1e-9,
    math.nan,
    math.inf,
    -math.inf,
    1e12,
    2**31,
    10**400,
    86400.001,
    "5",
    True,
    b"5",
    [],
    ...,
]
BAD_TTLS += [timedelta(0), timedelta(seconds=-1), timedelta.max, timedelta(days=1, microseconds=1), Decimal("Infinity")]


@pytest.mark.parametrize("ttl", BAD_TTLS, ids=repr)
def test_a_bad_ttl_is_a_value_error_before_anything_is_sent(ttl: Any) -> None:
    with pyfence.Fence("postgresql://nowhere.invalid/x") as fence:
        with pytest.raises(ValueError, match="ttl"):
            fence.acquire("report:1", ttl=ttl)
        with pytest.raises(ValueError, match="ttl"), fence.lease("report:1", ttl=ttl):
            pass


@pytest.mark.parametrize("ttl", [None, *BAD_TTLS], ids=repr)
def test_a_bad_ttl_renews_nothing(db: Database, fence: pyfence.Fence, ttl: Any) -> None:
    lease = fence.acquire("report:1", ttl=20)
    before = lease.expires_at
    if ttl is None:
        assert lease.renew(ttl) > before
    else:
        with pytest.raises(ValueError, match="ttl"):
            lease.renew(ttl)
        assert db.execute("select expires_at from fence.acquire('report:1')") == [(before,)]


@pytest.mark.parametrize("ttl", [0.001, 1, 2.5, 86400, timedelta(milliseconds=1), timedelta(days=1)], ids=repr)
def test_a_good_ttl_is_what_the_database_counts(fence: pyfence.Fence, db: Database, ttl: Any) -> None:
    ((before,),) = db.execute("select clock_timestamp()")
    lease = fence.acquire("report:1", ttl=ttl)
    ((after,),) = db.execute("select clock_timestamp()")
    length = timedelta(seconds=ttl_seconds(ttl))
    assert before + length <= lease.expires_at <= after + length


@pytest.mark.parametrize("wait", [-1, math.nan, math.inf, "1", True], ids=repr)
def test_a_bad_wait_is_a_value_error(wait: Any) -> None:
    with pyfence.Fence("postgresql://nowhere.invalid/x") as fence, pytest.raises(ValueError, match="wait"):
        fence.acquire("report:1", wait=wait)


@pytest.mark.parametrize("timeout", [0, -1, None, "1", math.inf], ids=repr)
def test_a_bad_timeout_is_a_value_error(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        pyfence.Fence("postgresql://nowhere.invalid/x", timeout=timeout)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "x" * 1025, "ü" * 513, "a\0b", "\ud800", None, 1, b"report:1"], ids=lambda n: repr(n)[:20]
)
def test_a_bad_name_is_refused_before_anything_is_sent(name: Any) -> None:
    with pyfence.Fence("postgresql://nowhere.invalid/x") as fence:
        with pytest.raises(pyfence.BadArgument):
            fence.acquire(name)
        if name is not None:
            with pytest.raises(pyfence.BadArgument):
                fence.acquire("report:1", owner=name)


@pytest.mark.parametrize("name", ["x" * 1024, "ü" * 512, "%s $1 :id ' \" ; \\ \n", "表🙂", "100%", " "])
def test_any_other_text_is_a_name(fence: pyfence.Fence, name: str) -> None:
    lease = fence.acquire(name, owner=name)
    assert (lease.resource, lease.owner) == (name, name)
    with pytest.raises(pyfence.LeaseHeld) as held:
        fence.acquire(name)
    assert (held.value.resource, held.value.owner) == (name, name)
    assert lease.release()


def test_the_default_owner_says_host_and_process(fence: pyfence.Fence) -> None:
    host, _, pid = fence.acquire("report:1").owner.rpartition(":")
    assert host
    assert int(pid) > 0


# -- resources ---------------------------------------------------------------------------------------------------------


def test_resource_renders_a_template() -> None:
    assert pyfence.resource("nightly-billing") == "nightly-billing"
    assert pyfence.resource("report:{id}", id=1) == "report:1"
    assert pyfence.resource("{a}:{b}", a="x", b="y:z") != pyfence.resource("{a}:{b}", a="x:y", b="z")
    assert pyfence.resource("{@schema}.{@table}:{id}", {"@schema": "app", "@table": "t"}, id=7) == "app.t:7"
    assert pyfence.resource("{a}", a="%:{}") == "%25%3A%7B%7D"
    assert pyfence.resource("{a}{b}", a=True, b=False) == "truefalse"
    assert pyfence.resource("{a}/{b}", a=Colour.RED, b=Size.BIG) == "RED/b"
    assert pyfence.resource("{{{a}}}", a=1) == "{1}"
    unique = uuid.uuid4()
    assert pyfence.resource("{a}", a=unique) == str(unique)


@pytest.mark.parametrize("value", [None, 1.0, Decimal(1), date(2026, 1, 1), b"x", [1], ("a",), ...], ids=repr)
def test_resource_takes_only_values_with_one_spelling(value: Any) -> None:
    with pytest.raises(pyfence.BadArgument, match="key_column"):
        pyfence.resource("r:{key_column}", key_column=value)


@pytest.mark.parametrize("template", ["{id", "id}", "{}", "{a}}", "{{a}", "", "{missing}", "{a{id}}"])
def test_resource_refuses_a_bad_template(template: str) -> None:
    with pytest.raises(pyfence.BadArgument):
        pyfence.resource(template, id=1, a=2)


NAMES = st.sampled_from(["id", "tenant_id", "Größe", "a b", "@schema", "x%", "q'q", 'd"d'])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
VALUES = st.one_of(TEXT, st.text("%:{}ab", max_size=6), st.integers(-(2**70), 2**70), st.booleans(), st.uuids())
PARTS = st.one_of(NAMES.map("{{{}}}".format), TEXT, st.text("{}:%", max_size=4))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, min_size=1, max_size=5), values=st.dictionaries(NAMES, VALUES, max_size=8))
def test_resource_renders_as_the_database_does(db: Database, parts: list[str], values: dict[str, Any]) -> None:
    template = "".join(parts)
    try:
        name: str | None = pyfence.resource(template, values)
    except pyfence.BadArgument:
        name = None
    assert name == (rendered(db, template, values) or None)


def rendered(db: Database, template: str, values: dict[str, Any]) -> str | None:
    try:
        ((name,),) = db.execute("select fence.resource_name(%s, %s::jsonb)", (template, to_json(values, name="values")))
    except psycopg.Error as exc:
        if exc.sqlstate != "LF010":
            raise
        return None
    return str(name)


# -- rows --------------------------------------------------------------------------------------------------------------

TYPES: list[tuple[str, Any, Any]] = [
    ("numeric", Decimal("12345678901234567890.10"), Decimal("12345678901234567890.10")),
    ("numeric", Decimal("1E+3"), Decimal("1E+3")),
    ("int8", 2**63 - 1, 2**63 - 1),
    ("float8", 0.1, 0.1),
    ("float8", 1e300, 1e300),
    ("bool", True, True),
    ("text", 'ü " \\ \n 🙂 %s', 'ü " \\ \n 🙂 %s'),
    ("text", None, None),
    ("text", Colour.RED, "RED"),
    ("text", Size.BIG, "b"),
    ("date", date(2026, 2, 28), date(2026, 2, 28)),
    ("time", time(1, 2, 3, 4), time(1, 2, 3, 4)),
    ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, 3, 4, 5, 6)),
    ("timestamptz", datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=14))), datetime(2026, 1, 1, 10, tzinfo=UTC)),
    ("interval", timedelta(days=-1, seconds=2, microseconds=3), timedelta(days=-1, seconds=2, microseconds=3)),
    ("uuid", uuid.UUID(int=5), uuid.UUID(int=5)),
    ("bytea", b"\x00\xff", b"\x00\xff"),
    ("bytea", bytearray(b""), b""),
    ("int[]", [1, None, 3], [1, None, 3]),
    ("jsonb", {"a": [1, {"b": None}], "n": Decimal("1.50")}, {"a": [1, {"b": None}], "n": 1.5}),
]


@pytest.mark.parametrize(("type_", "value", "expected"), TYPES, ids=lambda v: repr(v)[:30])
def test_a_value_becomes_the_columns_type(
    db: Database, fence: pyfence.Fence, type_: str, value: Any, expected: Any
) -> None:
    db.execute(f"create table public.t (id int primary key, v {type_})")
    db.execute("insert into public.t values (1)")
    db.execute("select fence.protect('public.t', 't')")
    with fence.lease("t") as lease:
        assert lease.fenced_update("public.t", {"id": 1}, {"v": value}) == 1
    assert db.execute("select v from public.t") == [(expected,)]


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, Decimal("NaN"), "a\0b", "\ud800", ..., {1: 2}, {"a": {2}}, [math.nan], 1j],
    ids=repr,
)
def test_a_value_without_a_json_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"changes\['v'\]"):
        to_json({"v": value}, name="changes")
    with pytest.raises(pyfence.BadArgument):
        to_json([("v", 1)], name="changes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["Order", "Größe 表", "user", "a-b", "a.b", 'a"b', "a'b", "a;drop", "%I", "{x}", ":id", "1st", "2024", " x "],
)
def test_a_table_by_any_name(db: Database, fence: pyfence.Fence, name: str) -> None:
    schema = f"S {name}"
    table = sql.Identifier(schema, name)
    owner = db.connect("app_owner", autocommit=True)
    db.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)).as_string(), user="fence_owner")
    db.execute(
        sql.SQL("grant all on schema {} to app_owner, app").format(sql.Identifier(schema)).as_string(),
        user="fence_owner",
    )
    owner.execute(sql.SQL("create table {} (id int primary key, v int)").format(table))
    owner.execute(sql.SQL("insert into {} values (1, 0)").format(table))
    owner.execute("select fence.protect(%s::regclass, 'x')", (table.as_string(),))
    with fence.lease("x") as lease:
        for value, form in enumerate([(schema, name), table, table.as_string()], start=1):
            assert lease.fenced_update(form, {"id": 1}, {"v": value}) == 1
            assert owner.execute(sql.SQL("select v from {}").format(table)).fetchall() == [(value,)]


@pytest.mark.parametrize(
    "table", ["", "16384", "a\0b", (), ("a", "b", "c"), ("", "x"), ("a", 1), 16384, None], ids=repr
)
def test_not_a_table_name(table: Any) -> None:
    with pytest.raises(pyfence.BadArgument, match="table name"):
        _statements.table_name(table)


def test_a_table_that_does_not_exist_is_an_error(db: Database, fence: pyfence.Fence) -> None:
    with fence.lease("x") as lease:
        for table in ("nothing", "public.nothing; drop table x", "no.such"):
            with pytest.raises(psycopg.Error):
                lease.fenced_update(table, {"id": 1}, {"v": 1})


# -- tokens and statements ---------------------------------------------------------------------------------------------


def test_no_statement_carries_a_time_of_the_clients(
    monkeypatch: pytest.MonkeyPatch, fence: pyfence.Fence, report: str
) -> None:
    sent: list[_statements.Statement] = []
    for module in (pyfence._calls, pyfence._writing):  # type: ignore[attr-defined]
        real = module.execute
        monkeypatch.setattr(module, "execute", lambda conn, s, real=real: (sent.append(s), real(conn, s))[1])
    with fence.lease("report:1", ttl=0.3) as lease:
        assert not lease.lost.wait(0.5)
        lease.renew()
        lease.renew(timedelta(seconds=3))
        lease.fenced_update(report, {"id": 1}, {"body": "x"})
        with fence.transaction(lease):
            pass
    assert {s.sql.split("(")[0].split(".")[-1] for s in sent if s.params} == {
        "acquire", "renew", "renew_all", "release", "fenced_update", "present",
    }  # fmt: skip

    def flat(value: object) -> list[object]:
        return [x for item in value for x in flat(item)] if isinstance(value, (list, tuple)) else [value]

    assert {type(value) for s in sent for value in flat(s.params)} <= {str, int, float, type(None)}
    secrets = {lease.claim.secret}
    assert not [s for s in sent if any(x in s.sql or x in repr(s) for x in secrets)]


def test_a_token_is_an_int_of_any_size(db: Database, fence: pyfence.Fence, report: str) -> None:
    lease = fence.acquire("report:1")
    assert type(lease.token) is int
    for cast in ("int8", "numeric", "text"):
        present = f"select fence.present(%s, (%s::{cast})::int8, %s)"
        conn = db.connect("app")
        conn.execute(present, (lease.resource, lease.token, lease.claim.secret))
        conn.execute("update public.report set body = %s where id = 1", (cast,))
        conn.commit()
    for token in (2**53 + 1, 2**62, -1, 0, 2**63 - 1):
        with pytest.raises(pyfence.FenceError) as caught, fence.transaction(pyfence.Claim("report:1", token, "x")):
            pass
        assert caught.value.sqlstate in ("LF001", "LF006")
    assert lease.fenced_update(report, {"id": 1}, {"body": "mine"}) == 1


@pytest.mark.parametrize("sequence", [True, "1", 1.0, 2**63], ids=repr)
def test_a_bad_sequence_is_a_value_error(sequence: Any) -> None:
    with pytest.raises(ValueError, match="sequence"):
        pyfence.Claim("r", 1, "s").with_sequence(sequence)


def test_importing_loads_no_driver() -> None:
    code = "import sys, pyfence; sys.exit(any(m in sys.modules for m in ('psycopg', 'sqlalchemy', 'logging')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert all(hasattr(pyfence, name) for name in pyfence.__all__)
    with pytest.raises(AttributeError):
        pyfence.nothing  # noqa: B018
