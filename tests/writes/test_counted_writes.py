"""p_writes 'once' and 'sequenced': what counts as a write, what a retry and a late write are told."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import psycopg
import pytest
from guards.scene import acquire, check_refusal, forge, protect, put_claims, release, renew, supersede
from harness import Database, sqlstate
from writes.scene import AGAIN, KINDS, NO_ROW, TABLE, UPDATE, Kind, Scene, begin, code_of, make, present

Isolation = psycopg.IsolationLevel


def applied(detail: str) -> tuple[int, str, datetime]:
    """Token, sequence and time of the write that a refusal tells of."""
    found = re.search(r"token (\d+), sequence (\S+), at (.+)\.$", detail)
    assert found, detail
    return int(found[1]), found[2], datetime.fromisoformat(found[3])


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_once_refuses_a_second_transaction_of_a_token(once: Scene, isolation: Isolation) -> None:
    ((before,),) = once.db.execute("select clock_timestamp()")
    once.write()
    second = once.transaction(isolation=isolation)
    with sqlstate("LF007") as refused:
        second.execute(AGAIN)
    assert once.body() == "new"
    check_refusal(refused.diag, table=refused.diag.table_name, secrets=[once.lease.secret])
    token, sequence, at = applied(refused.diag.message_detail)
    assert (token, sequence) == (once.lease.token, "none")
    assert before <= at <= before + timedelta(minutes=1)
    assert once.kind.resource in refused.diag.message_primary


def test_a_retry_of_a_numbered_write_is_told_what_was_applied(sequenced: Scene, isolation: Isolation) -> None:
    sequenced.write(7)
    retry = sequenced.transaction(7, isolation)
    with sqlstate("LF007") as refused:
        retry.execute(AGAIN)
    assert sequenced.body() == "new"
    check_refusal(refused.diag, table=refused.diag.table_name, secrets=[sequenced.lease.secret])
    assert applied(refused.diag.message_detail)[:2] == (sequenced.lease.token, "7")
    assert ", 8);" in refused.diag.message_hint


def test_numbers_go_up(sequenced: Scene, isolation: Isolation) -> None:
    for sequence in (-3, 0, 5, 9223372036854775807):
        connection = sequenced.transaction(sequence, isolation)
        connection.execute(UPDATE)
        connection.commit()
    for sequence in (9223372036854775806, 5, 0, -3, -9223372036854775808):
        connection = sequenced.transaction(sequence, isolation)
        with sqlstate("LF008") as refused:
            connection.execute(AGAIN)
        check_refusal(refused.diag, table=refused.diag.table_name, secrets=[sequenced.lease.secret])
        assert applied(refused.diag.message_detail)[:2] == (sequenced.lease.token, "9223372036854775807")
    assert sequenced.body() == "new"


def test_a_numbered_table_needs_a_number(sequenced: Scene) -> None:
    connection = sequenced.transaction()
    with sqlstate("LF008") as refused:
        connection.execute(UPDATE)
    check_refusal(refused.diag, table=refused.diag.table_name, secrets=[sequenced.lease.secret])
    assert "fence.present" in refused.diag.message_hint
    assert sequenced.accepted() == []


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_late_write_is_stale_not_repeated(db: Database, kind: Kind, writes: str, isolation: Isolation) -> None:
    """Also one with the very number that was applied: its generation is over, and that is what matters."""
    scene = make(db, kind, p_writes=writes)
    scene.write(1)
    newer = supersede(db, scene.lease)
    for sequence in (1, 2):
        late = db.connect("app", isolation=isolation)
        with sqlstate("LF001"):
            present(late, scene.lease, sequence)
        late.rollback()
        forge(late, scene.lease)
        with sqlstate("LF001"):
            late.execute(AGAIN)
    successor = begin(db, newer, 1, isolation)
    successor.execute(UPDATE)
    successor.commit()
    assert [row[1:] for row in scene.accepted()] == [(newer.token, 1 if writes == "sequenced" else None)]


def test_a_new_generation_counts_anew(sequenced: Scene) -> None:
    sequenced.write(100)
    newer = supersede(sequenced.db, sequenced.lease)
    connection = begin(sequenced.db, newer, 1)
    connection.execute(UPDATE)
    connection.commit()
    connection = begin(sequenced.db, newer, 1)
    with sqlstate("LF007") as refused:
        connection.execute(UPDATE)
    assert applied(refused.diag.message_detail)[0] == newer.token


def test_renewing_is_no_new_generation(once: Scene) -> None:
    once.write()
    renew(once.db, once.lease)
    with sqlstate("LF007"):
        once.write()


# -- what counts as a write --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_transaction_is_one_write(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    connection = scene.transaction(1)
    for _ in range(3):
        connection.execute(AGAIN)
    connection.execute("savepoint s")
    connection.execute("delete from public.t where id = 1")
    connection.execute("rollback to savepoint s")
    present(connection, scene.lease, 1)
    connection.execute(AGAIN)
    connection.commit()
    assert scene.body() == "old!!!!"
    with sqlstate("LF007"):
        scene.write(1, AGAIN)


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_presenting_alone_counts_nothing(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    for _ in range(2):
        scene.transaction(1).commit()
    assert scene.accepted() == []
    scene.write(1)


EMPTY = (
    NO_ROW,
    "delete from public.t where id = 99",
    "insert into public.t select * from public.t where id = 99",
    "insert into public.t select * from public.t where id = 1 on conflict do nothing",
    "with changed as (update public.t set body = 'new' where id = 99) select 1",
)


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_statement_without_rows_counts_nothing(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    for statement in EMPTY * 2:
        scene.write(1, statement)
    scene.write(1)
    assert scene.body() == "new"
    with sqlstate("LF007"):
        scene.write(1)


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_stale_statement_raises_no_mark(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    scene.write(1)
    mark = scene.accepted()
    supersede(db, scene.lease)
    for statement in (*EMPTY, UPDATE, "delete from public.t where id = 1"):
        connection = db.connect("app")
        forge(connection, scene.lease)
        code = code_of(partial(connection.execute, statement))
        assert code == "LF001" or (code is None and statement in EMPTY and "{" in kind.template)
        connection.commit()
        assert scene.accepted() == mark
    assert scene.body() == "new"


@pytest.mark.parametrize("writes", ["once", "sequenced"])
@pytest.mark.parametrize("name", ["row", "partitioned"])
def test_a_statement_without_rows_counts_nothing_under_a_covering_lease_either(
    db: Database, name: str, writes: str
) -> None:
    scene = make(db, KINDS[name], p_writes=writes, p_covering="all")
    release(db, scene.lease)
    covered = replace(scene, lease=acquire(db, "all"))
    for statement in EMPTY * 2:
        covered.write(1, statement)
    covered.write(1)
    assert covered.body() == "new"
    with sqlstate("LF007"):
        covered.write(1)
    covered = replace(covered, lease=supersede(db, covered.lease))
    covered.write(1, "delete from public.t where id = 1")
    with sqlstate("LF007"):
        covered.write(1, "delete from public.t where id = 2")
    covered = replace(covered, lease=supersede(db, covered.lease))
    covered.write(1, "truncate public.t")
    with sqlstate("LF007"):
        covered.write(1, "insert into public.t values (1, 'a', 'eu')")


WRITES = (
    "update public.t set body = 'new' where id = 1",
    "insert into public.t values (1, 'c', 'eu') on conflict do nothing",
    "insert into public.t values (1, 'a', 'eu', 'x') on conflict (id, tenant) do update set body = 'new'",
    "with changed as (update public.t set body = 'new' where id = 1) select 1",
    "copy public.t (id, tenant) from stdin",
    "delete from public.t where id = 1",
)


@pytest.mark.parametrize("writes", ["once", "sequenced"])
@pytest.mark.parametrize("name", ["row", "table", "partitioned table"])
def test_every_kind_of_statement_counts(db: Database, name: str, writes: str) -> None:
    scene = make(db, KINDS[name], p_writes=writes)
    if name == "partitioned table":
        for tenant in "cde":
            db.execute(f"create table public.t_{tenant} partition of public.t for values in ('{tenant}')")
        scene.protect()
    for sequence, statement in enumerate(WRITES, 1):
        connection = begin(db, scene.lease, sequence)
        if statement.startswith("copy"):
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write_row((1, "d"))
        else:
            connection.execute(statement)
        connection.commit()
        insert = "insert into public.t values (1, 'e', 'eu')"
        with sqlstate("LF007"):
            scene.write(sequence, insert if statement.startswith("delete") else AGAIN)
        if writes == "once":
            scene = replace(scene, lease=supersede(db, scene.lease))


def test_a_merge_counts(db: Database, kind: Kind) -> None:
    if db.cluster.version < 15:
        pytest.skip("MERGE is of PostgreSQL 15")
    scene = make(db, kind, p_writes="sequenced")
    merge = """
        merge into public.t using (values (%s::int)) v (id) on t.id = v.id
        when matched then update set body = 'new' when not matched then do nothing
    """
    connection = scene.transaction(1)
    connection.execute(merge, (99,))
    connection.commit()
    assert {row[2] for row in scene.accepted()} <= {None}, "nothing was touched"
    connection = scene.transaction(1)
    connection.execute(merge, (1,))
    connection.commit()
    with sqlstate("LF007"):
        scene.write(1)


@pytest.mark.parametrize("template", ["row:{id}", "nightly"])
def test_a_move_between_partitions_counts(db: Database, template: str) -> None:
    kind = Kind(template, "row:1" if "{" in template else template, partitioned=True)
    scene = make(db, kind, p_writes="sequenced")
    scene.write(1, "update public.t set tenant = 'b' where id = 1")
    with sqlstate("LF007"):
        scene.write(1)
    if db.cluster.version >= 15:
        merge = "merge into public.t using (values (1)) v (id) on t.id = v.id when matched then update set tenant = 'a'"
        scene.write(2, merge)
        with sqlstate("LF007"):
            scene.write(2)


@pytest.mark.parametrize("template", ["row:{id}", "nightly"])
def test_a_write_to_a_new_partition_counts(db: Database, template: str) -> None:
    kind = Kind(template, "row:1" if "{" in template else template, partitioned=True)
    scene = make(db, kind, p_writes="sequenced")
    db.execute("create table public.t_c partition of public.t for values in ('c')")
    scene.write(1, "insert into public.t_c values (1, 'c', 'eu')")
    for statement in (UPDATE, "update public.t_c set body = 'new'", "delete from public.t_c"):
        with sqlstate("LF007"):
            scene.write(1, statement)
    scene.write(2, "delete from public.t_c where id = 99")
    scene.write(2, "delete from public.t_c")


def test_truncate_counts(db: Database) -> None:
    for name in ("table", "partitioned table"):
        db.execute("drop table if exists public.t")
        kind = Kind(f"{name}!", f"{name}!", KINDS[name].partitioned)
        scene = make(db, kind, p_writes="once")
        scene.write(None, "truncate public.t")
        with sqlstate("LF007"):
            scene.write(None, "truncate public.t")


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_rollback_gives_the_write_back(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    connection = scene.transaction(1)
    connection.execute(UPDATE)
    connection.rollback()
    connection = scene.transaction(1)
    connection.execute("savepoint a")
    connection.execute(UPDATE)
    connection.execute("rollback to savepoint a")
    connection.commit()
    assert scene.accepted() == []
    connection = scene.transaction(1)
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("update public.t set body = (1 / 0)::text where id = 1")
    connection.rollback()
    scene.write(1)
    with sqlstate("LF007"):
        scene.write(1)


def test_a_claim_presented_within_a_savepoint_counts_after_it(rows: Scene) -> None:
    connection = rows.db.connect("app")
    connection.execute("savepoint a")
    present(connection, rows.lease, 1)
    connection.execute(UPDATE)
    connection.execute("release savepoint a")
    connection.execute(AGAIN)
    connection.commit()
    with sqlstate("LF007"):
        rows.write(1)


def test_several_numbers_in_one_transaction(sequenced: Scene, isolation: Isolation) -> None:
    connection = sequenced.transaction(1, isolation)
    connection.execute(AGAIN)
    present(connection, sequenced.lease, 2)
    connection.execute(AGAIN)
    connection.execute(AGAIN)
    connection.execute("savepoint a")
    present(connection, sequenced.lease, 3)
    connection.execute(AGAIN)
    connection.execute("rollback to savepoint a")
    connection.execute(AGAIN)
    connection.commit()
    assert sequenced.body() == "old!!!!"
    assert [sequence for _, _, sequence in sequenced.accepted()] == [2]
    sequenced.write(3)


def test_a_number_that_is_behind_within_its_own_transaction(rows: Scene, isolation: Isolation) -> None:
    """A retry of the first of two writes is not taken for a part of the second."""
    connection = rows.transaction(1, isolation)
    connection.execute(UPDATE)
    present(connection, rows.lease, 2)
    connection.execute(AGAIN)
    present(connection, rows.lease, 1)
    with sqlstate("LF008"):
        connection.execute(AGAIN)


def test_many_numbers_in_one_transaction_leave_one_claim(rows: Scene) -> None:
    connection = rows.transaction(1)
    ((short,),) = connection.execute("select length(current_setting('fence.claims'))").fetchall()
    for sequence in range(2, 100):
        present(connection, rows.lease, sequence)
    connection.execute(UPDATE)
    ((long,),) = connection.execute("select length(current_setting('fence.claims'))").fetchall()
    assert long <= short + 1
    connection.commit()
    assert [row[2] for row in rows.accepted()] == [99]


def test_each_resource_and_each_table_counts_by_itself(db: Database) -> None:
    scene = make(db, KINDS["row"], p_writes="sequenced")
    db.execute("create table public.other (id int primary key, body text)")
    db.execute("insert into public.other values (1, 'old')")
    protect(db, "public.other", "row:{id}", p_writes="once")
    second = acquire(db, "row:2")
    scene.write(5)
    connection = begin(db, scene.lease, 5)
    connection.execute("update public.other set body = 'new' where id = 1")
    present(connection, second, 3)
    connection.execute("update public.t set body = 'new' where id = 2")
    connection.commit()
    assert sorted(row[0] for row in scene.accepted()) == ["row:1", "row:1", "row:2"]
    scene.write(6)
    connection = begin(db, scene.lease, 6)
    with sqlstate("LF007"):
        connection.execute("update public.other set body = 'new' where id = 1")


def test_one_statement_over_several_resources_counts_for_each(db: Database) -> None:
    scene = make(db, KINDS["row"], p_writes="sequenced")
    second = acquire(db, "row:2")
    connection = scene.transaction(3)
    present(connection, second, 9)
    connection.execute("update public.t set body = 'new'")
    connection.commit()
    assert sorted(scene.accepted()) == [("row:1", scene.lease.token, 3), ("row:2", second.token, 9)]
    connection = scene.transaction(4)
    present(connection, second, 9)
    with sqlstate("LF007") as refused:
        connection.execute("update public.t set body = 'newer'")
    assert "row:2" in refused.diag.message_primary
    connection.rollback()
    scene.write(4)


def test_a_move_counts_for_both_resources(db: Database) -> None:
    scene = make(db, KINDS["row"], p_writes="sequenced")
    third = acquire(db, "row:3")
    connection = scene.transaction(1)
    present(connection, third, 1)
    connection.execute("update public.t set id = 3 where id = 1")
    connection.commit()
    assert sorted(row[0] for row in scene.accepted()) == ["row:1", "row:3"]


def test_present_all_carries_numbers(db: Database) -> None:
    scene = make(db, KINDS["row"], p_writes="sequenced")
    second = acquire(db, "row:2")
    leases = [second, scene.lease]
    claims = ([x.resource for x in leases], [x.token for x in leases], [x.secret for x in leases])
    connection = db.connect("app")
    connection.execute("select fence.present_all(%s, %s, %s, %s)", (*claims, [20, 10]))
    connection.execute("update public.t set body = 'new'")
    connection.commit()
    assert sorted(row[2] for row in scene.accepted()) == [10, 20]
    connection.execute("select fence.present_all(%s, %s, %s, %s)", (*claims, [21, None]))
    with sqlstate("LF008"):
        connection.execute("update public.t set body = 'new'")


@pytest.mark.parametrize("number", ["", "-", "--1", "1.0", "1e3", "one", " 1", "9" * 19, "9" * 40, "-" + "9" * 19])
def test_a_made_up_number_is_a_missing_one(rows: Scene, number: str) -> None:
    """Any role may write the setting; a true claim in it may have any number."""
    connection = rows.transaction(5)
    ((text,),) = connection.execute("select current_setting('fence.claims')").fetchall()
    put_claims(connection, text.replace(" 5\n", f" {number}\n"))
    with sqlstate("LF008"):
        connection.execute(UPDATE)


# -- retries of what cannot be done twice ------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", ["once", "sequenced"])
def test_a_retried_insert_is_a_retry_not_a_duplicate_key(db: Database, kind: Kind, writes: str) -> None:
    scene = make(db, kind, p_writes=writes)
    db.execute("select fence.unprotect('public.t')")
    db.execute("truncate public.t")
    scene.protect(writes)
    insert = "insert into public.t values (1, 'a', 'eu', 'new')"
    scene.write(1, insert)
    with sqlstate("LF007"):
        scene.write(1, insert)
    with sqlstate("23505"):
        begin(db, supersede(db, scene.lease), 1).execute(insert)


def test_a_retried_insert_is_one_while_the_first_is_open(db: Database, kind: Kind, isolation: Isolation) -> None:
    scene = make(db, kind, p_writes="sequenced")
    scene.write(1, "delete from public.t where id = 1")
    insert = "insert into public.t values (1, 'a', 'eu', 'new')"
    first, second = scene.transaction(2), scene.transaction(2, isolation)
    first.execute(insert)
    waiting = db.start_blocked(second, insert, by=first)
    first.commit()
    at_read_committed = isolation == Isolation.READ_COMMITTED
    with sqlstate("LF007" if at_read_committed else "40001"):
        waiting.result(10)
    second.rollback()
    second.close()
    with sqlstate("LF007"):
        scene.write(2, insert)


def test_a_first_insert_that_fails_lets_the_second_in(db: Database, kind: Kind) -> None:
    scene = make(db, kind, p_writes="sequenced")
    scene.write(1, "delete from public.t where id = 1")
    insert = "insert into public.t values (1, 'a', 'eu', 'new')"
    first, second = scene.transaction(2), scene.transaction(2)
    first.execute(insert)
    waiting = db.start_blocked(second, insert, by=first)
    first.rollback()
    assert waiting.result(10).rowcount == 1
    second.commit()


# -- changing one's mind -----------------------------------------------------------------------------------------------


def test_switching_between_the_rules(db: Database, kind: Kind) -> None:
    """Each keeps what the others have remembered; 'many' asks for nothing and forgets nothing."""
    scene = make(db, kind)
    scene.write()
    assert scene.accepted() == [], "'many' remembers nothing"
    scene.protect("once")
    scene.write()
    assert code_of(scene.write) == "LF007"
    scene.protect("sequenced")
    assert code_of(scene.write) == "LF008", "a number is missing"
    scene.write(5)
    assert code_of(lambda: scene.write(5)) == "LF007"
    scene.protect()
    assert code_of(lambda: scene.write(5)) == "LF007", "left out, the rule stays"
    scene.protect("once")
    with sqlstate("LF007") as written:
        scene.write()
    assert "new one" in written.diag.message_hint, "the token has written; a higher sequence would not help"
    scene.protect("many")
    scene.write()
    scene.write(3)
    scene.protect("sequenced")
    assert code_of(lambda: scene.write(5)) == "LF007"
    assert code_of(lambda: scene.write(4)) == "LF008"
    scene.write(6)


def test_unprotecting_forgets(db: Database, kind: Kind) -> None:
    scene = make(db, kind, p_writes="once")
    scene.write()
    db.execute("select fence.unprotect('public.t')")
    assert scene.accepted() == []
    scene.protect("once")
    scene.write()


def test_a_dropped_table_leaves_nothing_behind_once_another_takes_its_name(db: Database, kind: Kind) -> None:
    scene = make(db, kind, p_writes="once")
    scene.write()
    db.execute("drop table public.t")
    db.execute("create table public.t (id int primary key, tenant text, region text, body text, token bigint)")
    db.execute("insert into public.t values (1, 'a', 'eu', 'old')")
    scene.protect("once")
    assert scene.accepted() == []
    scene.write()


def test_a_renamed_table_goes_on_counting(db: Database, kind: Kind) -> None:
    scene = make(db, kind, p_writes="once")
    scene.write()
    db.execute("alter table public.t rename to s")
    db.execute("alter table public.s rename to t")
    protect(db, TABLE, scene.kind.template)
    with sqlstate("LF007"):
        scene.write()


def test_the_triggers_stand_and_go_with_the_rule(db: Database, kind: Kind) -> None:
    scene = make(db, kind)

    def triggers() -> list[tuple[str, str, str]]:
        return db.execute(
            "select tgrelid::regclass::text, tgname::text, tgenabled::text from pg_trigger where tgparentid = 0 "
            "order by 1, 2"
        )

    many = triggers()
    for writes in ("once", "sequenced"):
        scene.protect(writes)
        assert db.execute("select writes, armed from fence.protected_tables") == [(writes, True)]
        assert {state for _, name, state in triggers() if not name.startswith("0_fence_row")} <= {"A"}
    scene.protect("many")
    assert triggers() == many
    assert db.execute("select writes, armed from fence.protected_tables") == [("many", True)]
