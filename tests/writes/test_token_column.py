"""p_token_column: the guard itself writes the accepted token on every row, whatever the writer says."""

from __future__ import annotations

from typing import Any

import pytest
from errors.reader import commands
from guards.scene import Lease, acquire, check_refusal, expire, forge, protect, supersede
from harness import Database, sqlstate
from writes.scene import KINDS, UPDATE, Kind, Scene, begin, make, present


@pytest.fixture
def stamped(db: Database, kind: Kind) -> Scene:
    return make(db, kind, p_token_column="token")


def tokens(db: Database, table: str = "public.t") -> dict[int, int | None]:
    return dict(db.execute(f"select id, token from {table}"))


WRITES = {
    "update": "update public.t set body = 'new' where id = 1",
    "update with a value": "update public.t set token = 7 where id = 1",
    "update to null": "update public.t set token = null where id = 1",
    "update from": "update public.t set body = s.b from (values ('new')) s (b) where id = 1",
    "writable cte": "with changed as (update public.t set token = -1 where id = 1 returning token) table changed",
    "upsert": "insert into public.t (id, tenant, region) values (1, 'a', 'eu') on conflict (id, tenant) do update "
    "set token = excluded.token - 1",
}


def test_every_way_of_writing_is_stamped(stamped: Scene) -> None:
    for name, statement in WRITES.items():
        connection = stamped.transaction()
        connection.execute(statement)
        found = connection.execute("select id, token from public.t").fetchall()
        assert dict(found) == {1: stamped.lease.token, 2: None}, name
        connection.rollback()


def test_inserts_are_stamped(stamped: Scene) -> None:
    stamped.write(None, "delete from public.t where id = 1")
    for statement in (
        "insert into public.t (id, tenant, region) values (1, 'a', 'eu') returning token",
        "insert into public.t values (1, 'a', 'eu', 'x', 12345) returning token",
        "insert into public.t select 1, 'a', 'eu', 'x', 12345 returning token",
    ):
        connection = stamped.transaction()
        assert connection.execute(statement).fetchall() == [(stamped.lease.token,)]
        connection.rollback()
    connection = stamped.transaction()
    with connection.cursor() as cursor, cursor.copy("copy public.t from stdin") as copy:
        copy.write_row((1, "a", "eu", "x", 12345))
    connection.commit()
    assert tokens(stamped.db)[1] == stamped.lease.token


def test_a_merge_is_stamped(stamped: Scene) -> None:
    if stamped.db.cluster.version < 15:
        pytest.skip("MERGE is of PostgreSQL 15")
    merge = """
        merge into public.t using (values (1)) v (id) on t.id = v.id
        when matched then update set token = 5 when not matched then insert values (1, 'a', 'eu', 'new', 5)
    """
    stamped.write(None, merge)
    assert tokens(stamped.db)[1] == stamped.lease.token
    stamped.write(None, "delete from public.t where id = 1")
    stamped.write(None, merge)
    assert tokens(stamped.db)[1] == stamped.lease.token


def test_fenced_update_stamps_and_cannot_set_another(stamped: Scene) -> None:
    connection = stamped.db.connect("app", autocommit=True)
    for changes in ('{"body": "new"}', '{"token": 1}'):
        ((rows,),) = connection.execute(
            "select fence.fenced_update('public.t', %s, %s, %s, %s, %s)",
            ('{"id": 1, "tenant": "a"}', changes, *stamped.lease.parameters),
        ).fetchall()
        assert rows == 1
        assert tokens(stamped.db)[1] == stamped.lease.token


def test_a_new_generation_stamps_its_own(stamped: Scene) -> None:
    stamped.write()
    newer = supersede(stamped.db, stamped.lease)
    connection = begin(stamped.db, newer)
    connection.execute(UPDATE)
    connection.commit()
    assert tokens(stamped.db)[1] == newer.token > stamped.lease.token


def test_a_rival_trigger_does_not_set_it(stamped: Scene) -> None:
    db = stamped.db
    body = "begin new.token := 1; return new; end"
    db.execute(f"create function public.rival() returns trigger language plpgsql as $${body}$$")
    for name in ("a", "zzz", "~0"):
        when = "before insert or update on public.t for each row"
        db.execute(f'create trigger "{name}" {when} execute function public.rival()')
    stamped.write()
    assert tokens(db)[1] == stamped.lease.token


def test_a_refused_write_stamps_nothing(stamped: Scene) -> None:
    stamped.write()
    connection = stamped.db.connect("outsider")
    with sqlstate("LF004"):
        connection.execute("update public.t set token = 99")
    connection.rollback()
    acquire(stamped.db, "row:99")
    assert tokens(stamped.db) == {1: stamped.lease.token, 2: None}


@pytest.mark.parametrize("template", ["nightly", "row:{id}"])
def test_a_claim_that_changes_within_the_statement_is_not_stamped(db: Database, template: str) -> None:
    """And is put back before the statement is over, where the guard looks at it: the row keeps its number."""
    db.execute("create table public.t (id int primary key, body text, token bigint)")
    db.execute("insert into public.t values (1, 'old', 7), (2, 'old', 7)")
    protect(db, "public.t", template, p_token_column="token")
    leases = [acquire(db, name) for name in (["nightly"] if template == "nightly" else ["row:1", "row:2"])]
    writer = db.connect("app")
    for lease in leases:
        writer.execute("select fence.present(%s, %s, %s)", lease.parameters)
    ((good,),) = writer.execute("select current_setting('fence.claims')").fetchall()
    forged = good.replace(str(leases[0].token), "9000000000000000000")
    change = "update public.t set body = set_config('fence.claims', case id when 1 then %s else %s end, true)"
    writer.execute(change, (forged, good))
    writer.commit()
    assert tokens(db) == {1: 7, 2: leases[-1].token}


@pytest.mark.parametrize("known", ["nothing", "the token"])
def test_a_made_up_claim_does_not_stamp_the_holders_token(db: Database, known: str) -> None:
    """Its lease ends while the statement runs, whose writer has the next one when the guard looks at it."""
    db.execute("create table public.t (id int primary key, body text, token bigint)")
    db.execute("insert into public.t values (1, 'old', 7)")
    protect(db, "public.t", "row:{id}", p_token_column="token")
    held, writer = acquire(db, "row:1"), db.connect("app")
    expire(db, "row:1")
    forge(writer, Lease("row:1", held.token if known == "the token" else 1, "x" * 32))
    writer.execute(
        "create function pg_temp.f() returns bigint language sql as $$ select set_config('fence.claims', '', true); "
        "select a.token from fence.acquire('row:1') a, fence.present(a.resource, a.token, a.secret) $$"
    )
    ((token,),) = writer.execute("update public.t set body = 'mine' returning pg_temp.f()").fetchall()
    writer.commit()
    assert token > held.token
    assert tokens(db) == {1: 7}


@pytest.mark.parametrize("template", ["nightly", "row:{id}"])
def test_without_a_claim_at_that_moment_nothing_new_is_stamped(db: Database, template: str) -> None:
    """Claims may be gone while a row is made, and be back when the guard looks at it."""
    db.execute("create table public.t (id int primary key, body text, token bigint)")
    db.execute("insert into public.t values (1, 'old', 7)")
    protect(db, "public.t", template, p_token_column="token")
    writer = db.connect("app")
    for name in ["nightly"] if template == "nightly" else ["row:1", "row:2"]:
        writer.execute("select fence.present(%s, %s, %s)", acquire(db, name).parameters)
    ((good,),) = writer.execute("select current_setting('fence.claims')").fetchall()
    away, back = "set_config('fence.claims', '', true)", f"returning set_config('fence.claims', '{good}', true)"
    writer.execute(f"update public.t set token = 9000000000000000000, body = {away} where id = 1 {back}")
    writer.execute(f"insert into public.t select 2, {away}, 9000000000000000000 {back}")
    writer.commit()
    assert tokens(db) == {1: 7, 2: None}


@pytest.mark.parametrize(("mine", "other"), [("row:1", "all rows"), ("all rows", "row:1")])
def test_a_made_up_claim_on_what_covers_a_row_or_is_covered_stamps_nothing(db: Database, mine: str, other: str) -> None:
    """Its lease is not open; the last number of it is lower than what stands there."""
    db.execute("create table public.t (id int primary key, body text, token bigint)")
    db.execute("insert into public.t values (1, 'old', 7)")
    protect(db, "public.t", "row:{id}", p_covering="all rows", p_token_column="token")
    over = acquire(db, other)
    db.execute("select fence.release(%s, %s, %s)", over.parameters, user="app")
    lease, writer = acquire(db, mine), db.connect("app")
    writer.execute("select fence.present(%s, %s, %s)", lease.parameters)
    ((good,),) = writer.execute("select current_setting('fence.claims')").fetchall()
    forged = good.replace(mine.encode().hex(), other.encode().hex())
    away, back = f"set_config('fence.claims', '{forged}', true)", f"set_config('fence.claims', '{good}', true)"
    writer.execute(f"update public.t set body = {away} returning {back}")
    writer.commit()
    assert tokens(db) == {1: 7}
    writer.execute("select fence.present(%s, %s, %s)", lease.parameters)
    writer.execute("update public.t set body = 'mine'")
    writer.commit()
    assert tokens(db) == {1: lease.token}


def test_an_exempt_writers_number_counts_while_it_is_exempt(db: Database) -> None:
    """And without the exemption not even where claims are taken away and put back within the statement."""
    db.execute("create table public.t (id int primary key, body text, token bigint)")
    protect(db, "public.t", "row:{id}", p_token_column="token")
    db.execute("select fence.exempt('public.t', 'app', now() + interval '1 hour', 'test')")
    writer = db.connect("app")
    writer.execute("insert into public.t values (1, 'new', 5)")
    writer.execute("update public.t set token = token + 1")
    writer.commit()
    assert tokens(db) == {1: 6}
    db.execute("update fence._exemption set until = clock_timestamp() - interval '1 ms'", user="fence_owner")
    writer.execute("select fence.present(%s, %s, %s)", acquire(db, "row:1").parameters)
    ((good,),) = writer.execute("select current_setting('fence.claims')").fetchall()
    writer.execute(
        "update public.t set token = 7, body = set_config('fence.claims', '', true)"
        f" returning set_config('fence.claims', '{good}', true)"
    )
    writer.commit()
    assert tokens(db) == {1: 6}


def test_each_row_gets_the_token_of_its_resource(db: Database) -> None:
    for partitioned in (False, True):
        scene = make(db, Kind("row:{id}", "row:1", partitioned), p_token_column="token")
        second, third = acquire(db, "row:2"), acquire(db, "row:3")
        connection = scene.transaction()
        present(connection, second, None)
        present(connection, third, None)
        connection.execute("update public.t set body = 'new'")
        connection.commit()
        assert tokens(db) == {1: scene.lease.token, 2: second.token}
        connection = scene.transaction()
        present(connection, third, None)
        connection.execute("update public.t set id = 3 where id = 1")
        connection.commit()
        assert tokens(db) == {3: third.token, 2: second.token}, "where it has come to"
        db.execute("drop table public.t")
        for lease in (scene.lease, second, third):
            db.execute("select fence.release(%s, %s, %s)", lease.parameters, user="app")


def test_partitions_are_stamped_whichever_way_a_row_comes(db: Database) -> None:
    scene = make(db, Kind("row:{id}", "row:1", partitioned=True), p_token_column="token")
    db.execute("create table public.t_c partition of public.t for values in ('c')")
    columns = "token bigint, region varchar(9), body text, tenant text not null, id int not null"
    db.execute(f"create table public.t_d ({columns})")
    db.execute("alter table public.t attach partition public.t_d for values in ('d')")
    for turn in range(2):
        for tenant, leaf in (("a", "t_a"), ("b", "t_b"), ("b", "t_b_all"), ("c", "t_c"), ("d", "t_d"), ("d", "t")):
            scene.write(None, f"update public.t set tenant = '{tenant}', token = 0 where id = 1")
            assert tokens(db)[1] == scene.lease.token, (turn, "moved to", leaf)
            scene.write(None, f"update public.{leaf} set token = 0 where id = 1")
            assert tokens(db)[1] == scene.lease.token, (turn, leaf)
            scene.write(None, f"delete from public.{leaf} where id = 1")
            scene.write(None, f"insert into public.{leaf} (id, tenant, region, token) values (1, '{tenant}', 'eu', 0)")
            assert tokens(db)[1] == scene.lease.token, (turn, leaf)
        scene.protect()


@pytest.mark.parametrize("template", ["row:{id}", "nightly"])
def test_inheritance_children_are_stamped(db: Database, template: str) -> None:
    db.execute("create table public.t (id int, body text, token bigint)")
    db.execute("create table public.child (extra int) inherits (public.t)")
    protect(db, "public.t", template, p_token_column="token")
    lease = acquire(db, "row:1" if "{" in template else template)
    connection = begin(db, lease)
    connection.execute("insert into public.t values (1, 'x', 5)")
    connection.execute("insert into public.child values (1, 'x', 5)")
    connection.execute("update public.t set token = 6")
    connection.commit()
    assert db.execute("select token from public.t") == [(lease.token,)] * 2


def test_the_largest_tokens_are_stamped(db: Database) -> None:
    scene = make(db, KINDS["row"], p_token_column="token")
    for token in (10**18, 2**63 - 1):
        db.execute("update fence._lease set token = %s where resource = 'row:1'", (token,), user="fence_owner")
        lease = type(scene.lease)(scene.lease.resource, token, scene.lease.secret)
        connection = begin(db, lease)
        connection.execute(UPDATE)
        connection.commit()
        assert tokens(db)[1] == token


def test_counted_and_stamped(db: Database, kind: Kind) -> None:
    scene = make(db, kind, p_writes="sequenced", p_token_column="token")
    scene.write(1)
    with sqlstate("LF007"):
        scene.write(1)
    assert tokens(db)[1] == scene.lease.token


# -- choosing the column -----------------------------------------------------------------------------------------------


def test_the_column_stays_until_it_is_taken_away(stamped: Scene) -> None:
    db = stamped.db

    def column() -> list[Any]:
        return db.execute("select token_column, armed from fence.protected_tables")

    stamped.protect()
    assert column() == [("token", True)]
    stamped.write(None, "update public.t set token = 5 where id = 1")
    assert tokens(db)[1] == stamped.lease.token
    stamped.protect(p_token_column="")
    assert column() == [(None, True)]
    stamped.write(None, "update public.t set token = 5 where id = 1")
    assert tokens(db)[1] == 5
    left = "select from pg_trigger where tgname like '%stamp%'"
    assert db.execute(left) == []
    stamped.protect(p_token_column="token")
    stamped.write(None, "update public.t set token = 5 where id = 1")
    assert tokens(db)[1] == stamped.lease.token
    db.execute("select fence.unprotect('public.t')")
    assert db.execute(left) == []


@pytest.mark.parametrize(
    ("column", "definition"),
    [
        ("missing", None),
        ("TOKEN", None),
        ("ctid", None),
        ("tableoid", None),
        ("c", "int"),
        ("c", "numeric"),
        ("c", "text"),
        ("c", "public.token"),
        ("c", "bigint generated always as (1) stored"),
        ("c", "bigint generated always as identity"),
        ("c", "bigint generated by default as identity"),
        ("key", "bigint"),
    ],
)
def test_a_column_that_cannot_be_stamped_is_refused(db: Database, column: str, definition: str | None) -> None:
    db.execute("create domain public.token as bigint check (value > 0)")
    db.execute("create table public.t (id int primary key, token bigint)")
    if definition is not None:
        db.execute(f'alter table public.t add column "{column}" {definition}')
    with sqlstate("LF010") as refused:
        protect(db, "public.t", "row:{key}" if column == "key" else "row:{id}", p_token_column=column)
    check_refusal(refused.diag, table="t")
    assert db.execute("select from fence.protected_tables") == []
    for command in commands(refused.diag.message_hint):
        db.execute(command)
    protect(db, "public.t", "row:{id}", p_token_column="fence_token")


def test_a_generated_key_cannot_be_stamped(db: Database) -> None:
    key = "name text generated always as (lower(body)) stored"
    db.execute(f"create table public.t (id int, body text, {key}, token bigint)")
    with sqlstate("LF010"):
        protect(db, "public.t", "row:{name}", p_token_column="token")
    protect(db, "public.t", "row:{name}")


def test_a_column_that_decides_the_partition_is_refused(db: Database) -> None:
    db.execute("create table public.t (id int, token bigint) partition by range (token)")
    db.execute("create table public.t_all partition of public.t default")
    with sqlstate("LF010"):
        protect(db, "public.t", "row:{id}", p_token_column="token")


@pytest.mark.parametrize("name", ['"a"b"', "%I", "{x}", "Größe 表", "a'b", "$1", "x" * 63])
def test_odd_names(db: Database, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    db.execute(f"create table public.t (id int primary key, {quoted} bigint)")
    protect(db, "public.t", "row:{id}", p_token_column=name)
    lease = acquire(db, "row:1")
    connection = begin(db, lease)
    connection.execute("insert into public.t (id) values (1)")
    connection.commit()
    assert db.execute("select * from public.t") == [(1, lease.token)]


@pytest.mark.parametrize("name", ["table", "row", "partitioned"])
def test_a_column_that_is_gone_is_told_and_the_hint_mends_it(db: Database, name: str) -> None:
    for change in (
        "alter table public.t rename column token to old_token",
        "alter table public.t drop column token",
        "alter table public.t alter column token type int using 0",
        "alter table public.t alter column token type text using ''",
    ):
        scene = make(db, KINDS[name], p_token_column="token")
        db.execute(change)
        with sqlstate("LF013") as refused:
            scene.write()
        check_refusal(refused.diag, table=refused.diag.table_name)
        hint = refused.diag.message_hint
        db.execute(hint[hint.index("select ") :])
        scene.write()
        assert db.execute("select token_column, armed from fence.protected_tables") == [(None, True)]
        db.execute("drop table public.t")
        db.execute("select fence.release(%s, %s, %s)", scene.lease.parameters, user="app")


def test_a_key_column_that_is_gone_is_told_on_stamped_and_counted_tables_too(db: Database) -> None:
    for options in ({"p_token_column": "token"}, {"p_writes": "sequenced"}):
        scene = make(db, KINDS["row"], **options)
        db.execute("alter table public.t rename column id to number")
        connection = scene.transaction(1)
        with sqlstate("LF013"):
            connection.execute("insert into public.t (number, tenant) values (1, 'z')")
        connection.rollback()
        with sqlstate("LF013"):
            scene.write(1, "update public.t set body = 'new' where number = 1")
        protect(db, "public.t", "row:{number}")
        scene.write(1, "update public.t set body = 'new' where number = 1")
        db.execute("drop table public.t")
        db.execute("select fence.release(%s, %s, %s)", scene.lease.parameters, user="app")
