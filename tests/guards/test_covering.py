"""Covering leases: one holder for every row of a table, and no row's holder beside it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from guards.scene import (
    Lease,
    acquire,
    ask,
    contents,
    expire,
    look_and_wait,
    present,
    protect,
    put_claims,
    release,
    renew,
    revoke,
    startup,
)
from harness import SUPERUSER, Database, sqlstate

READ_COMMITTED = psycopg.IsolationLevel.READ_COMMITTED
ONE = "update public.t set body = 'one' where id = 1"
ALL = "update public.t set body = 'all'"


@pytest.fixture
def t(db: Database) -> str:
    db.execute("create table public.t (id int primary key, body text)")
    db.execute("insert into public.t select i, 'old' from generate_series(1, 3) i")
    protect(db, "public.t", "row:{id}", p_covering="all rows")
    return "public.t"


def bodies(db: Database) -> list[Any]:
    return [row[1] for row in contents(db, "public.t")]


@pytest.mark.parametrize(
    "statement", [ALL, "delete from public.t where body < 'p'", "truncate public.t", "insert into public.t values (9)"]
)
def test_the_holder_may_write_every_row(
    db: Database, t: str, statement: str, isolation: psycopg.IsolationLevel
) -> None:
    lease, writer = acquire(db, "all rows"), db.connect("app", isolation=isolation)
    before = contents(db, t)
    present(writer, lease)
    writer.execute(statement)
    writer.commit()
    assert contents(db, t) != before
    with sqlstate("LF004"):
        writer.execute(statement)


def test_copy_of_many_keys_under_one_lease(db: Database, t: str) -> None:
    writer = db.connect("app")
    present(writer, acquire(db, "all rows"))
    with writer.cursor().copy("copy public.t (id) from stdin") as copy:
        for key in range(100, 200):
            copy.write_row((key,))
    writer.commit()
    assert len(contents(db, t)) == 103


def test_no_row_is_granted_while_the_covering_lease_is_held(db: Database, t: str) -> None:
    covering = acquire(db, "all rows")
    answer = ask(db, "row:1")
    assert (answer.granted, answer.reason, answer.token, answer.owner) == (False, "held", covering.token, "tester")
    assert ask(db, "other:1").granted
    release(db, covering)
    assert acquire(db, "row:1").token > covering.token


def test_a_row_writer_that_meets_a_covering_grant_in_flight_waits_and_is_refused(
    db: Database, t: str, isolation: psycopg.IsolationLevel
) -> None:
    """Its own lease is still live where it looks: the grant that ends it is not committed."""
    row, writer, asking = acquire(db, "row:1"), db.connect("app", isolation=isolation), db.connect("app")
    assert ask(asking, "all rows").granted
    waiting = db.start_blocked(writer, "select fence.present(%s, %s, %s)", row.parameters, by=asking)
    asking.commit()
    with sqlstate("LF001" if isolation == READ_COMMITTED else "40001"):
        waiting.result(10)
    writer.rollback()
    assert bodies(db) == ["old"] * 3


@pytest.mark.parametrize("end", [release, lambda db, x: expire(db, x.resource), lambda db, x: revoke(db, x.resource)])
def test_after_it_row_tokens_start_above_its_own(db: Database, t: str, end: Any) -> None:
    db.execute(
        "insert into fence._lease (resource, token, owner, ttl, acquired_at, expires_at, lineage) "
        "values ('row:1', 9007199254740000, '', '1 s', now(), now(), 1)",
        user="fence_owner",
    )
    covering = acquire(db, "all rows")
    assert covering.token > 9007199254740000
    end(db, covering)
    assert acquire(db, "row:2").token > covering.token


def test_its_grant_ends_every_rows_lease(db: Database, t: str, isolation: psycopg.IsolationLevel) -> None:
    row, other = acquire(db, "row:1"), acquire(db, "other:1")
    writer = db.connect("app", isolation=isolation)
    present(writer, row)
    writer.execute(ONE)
    writer.commit()
    covering = acquire(db, "all rows")
    assert covering.token > row.token
    with sqlstate("LF001"):
        renew(db, row)
    with sqlstate("LF001"):
        present(writer, row)
    writer.rollback()
    renew(db, other)
    release(db, covering)
    with sqlstate("LF001"):
        present(writer, row)


def test_its_grant_waits_for_the_open_writers_of_rows(db: Database, t: str, isolation: psycopg.IsolationLevel) -> None:
    row, writer = acquire(db, "row:1"), db.connect("app", isolation=isolation)
    present(writer, row)
    writer.execute(ONE)
    answer = ask(db, "all rows")
    assert (answer.granted, answer.reason) == (False, "draining")
    assert ask(db, "row:2").reason == "draining", "new row leases must not starve it"
    writer.commit()
    covering = acquire(db, "all rows")
    present(writer, covering)
    writer.execute(ALL)
    writer.commit()
    assert bodies(db) == ["all"] * 3


def test_its_grant_waits_for_who_has_presented_a_row(db: Database, t: str, isolation: psycopg.IsolationLevel) -> None:
    """Not yet written: it may have changed what the covering job comes to, and would wait for that job at its rows."""
    row, writer, job = acquire(db, "row:1"), db.connect("app", isolation=isolation), db.connect("app")
    db.execute("create table public.log (line text)")
    db.execute("insert into public.log values ('')")
    present(writer, row)
    writer.execute("update public.log set line = 'writer'")
    with sqlstate("LF012"):
        job.execute("select fence.enter('all rows')")
    job.rollback()
    writer.execute(ONE)
    writer.commit()
    job.execute("select fence.enter('all rows')")
    job.execute("update public.log set line = 'job'")
    job.commit()
    assert bodies(db) == ["one", "old", "old"]


def test_a_claim_that_is_refused_at_sight_locks_nothing_of_what_covers(db: Database, t: str) -> None:
    """Else whoever presents made-up claims without a pause keeps it from everybody."""
    acquire(db, "row:1")
    release(db, acquire(db, "all rows"))
    asking, writer = db.connect("app"), db.connect("app")
    assert ask(asking, "all rows").granted
    for name in ("row:1", "row:7"):
        writer.execute("set statement_timeout = '4 s'")
        with sqlstate("LF006"):  # at once: the covering grant is not committed
            writer.execute("select fence.present(%s, 9007199254740993, 'x')", (name,))
        writer.rollback()


def test_a_claim_that_is_granted_at_this_moment_is_held_like_others(db: Database, t: str) -> None:
    """At first sight it is not the lease's, and what covers it is not locked; then it is."""
    expire(db, acquire(db, "row:1").resource)
    asking, writer = db.connect("app"), db.connect("app")
    row = acquire(asking, "row:1")
    waiting = db.start_blocked(writer, "select fence.present(%s, %s, %s)", row.parameters, by=asking)
    asking.commit()
    waiting.result(10)
    assert ask(db, "all rows").reason == "draining"
    writer.commit()
    assert ask(db, "all rows").granted


def test_a_clock_that_was_set_back_keeps_no_row_waiting(db: Database, t: str) -> None:
    """A request that was given up keeps rows back for five seconds, and the clock has lost an hour since."""
    writer = db.connect("app")
    present(writer, acquire(db, "row:1"))
    assert ask(db, "all rows").reason == "draining"
    assert ask(db, "row:2").reason == "draining"
    db.execute("update fence._covering set wanted_until = wanted_until + interval '1 h'", user="fence_owner")
    assert ask(db, "row:2").granted


def test_its_grant_waits_for_who_has_presented_under_each_of_two_covering_resources(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "row:{id}", p_covering="rows of u")
    writer = db.connect("app")
    present_all = "select fence.present_all(array[%s], array[%s::bigint], array[%s])"
    writer.execute(present_all, acquire(db, "row:1").parameters)
    assert (ask(db, "all rows").reason, ask(db, "rows of u").reason) == ("draining", "draining")
    assert ask(db, "other").granted
    writer.commit()
    assert ask(db, "all rows").granted
    assert ask(db, "rows of u").granted


@pytest.mark.parametrize(
    "statement", ["update public.t set body = 'x' where false", "delete from public.t where id = 9"]
)
def test_a_made_up_claim_keeps_no_covering_request_waiting(db: Database, t: str, statement: str) -> None:
    """Whoever may write the table can make one up without any right in schema fence, and leave it open."""
    writer = db.connect("outsider")
    put_claims(writer, writer.execute("select pg_current_xact_id()::text").fetchall()[0][0] + "\nx")
    writer.execute(statement)
    covering = acquire(db, "all rows")
    release(db, covering)
    assert ask(db, "row:1").granted
    writer.commit()


def test_a_row_is_granted_only_when_the_covering_writers_are_through(
    db: Database, t: str, isolation: psycopg.IsolationLevel
) -> None:
    covering, writer = acquire(db, "all rows"), db.connect("app", isolation=isolation)
    present(writer, covering)
    writer.execute(ALL)
    expire(db, covering.resource)
    assert ask(db, "row:1").reason == "draining"
    if isolation in (None, READ_COMMITTED):
        with sqlstate("LF001"):  # closed by the one who asked: no busy holder keeps rows out
            writer.execute(ALL)
        writer.rollback()
    else:
        writer.commit()
    assert ask(db, "row:1").granted


def test_a_request_for_a_row_does_not_wait_for_a_change_of_the_covering_lease(db: Database, t: str) -> None:
    """Its holder's transaction is open, and somebody revokes it at this moment."""
    covering, writer = acquire(db, "all rows"), db.connect("app")
    present(writer, covering)
    writer.execute(ALL)
    expire(db, covering.resource)
    revoking = db.connect("app_owner")
    revoking.execute("select fence.revoke('all rows', 'test')")
    asking = db.connect("app", autocommit=True)
    asking.execute("set statement_timeout = '1 s'")
    assert ask(asking, "row:1").reason == "draining"
    revoking.commit()
    writer.commit()
    assert ask(db, "row:1").granted


def test_an_old_snapshot_cannot_write_under_a_covering_lease_that_is_over(
    db: Database, t: str, isolation: psycopg.IsolationLevel
) -> None:
    """until_superseded, so that no clock helps: the snapshot was taken while the lease was open."""
    protect(db, "public.t", "row:{id}", p_expiry="until_superseded")
    covering, writer = acquire(db, "all rows"), db.connect("app", isolation=isolation)
    writer.execute("select 1 from public.t")
    expire(db, covering.resource)
    row, second = acquire(db, "row:1"), db.connect("app")
    present(second, row)
    second.execute(ONE)
    second.commit()
    with sqlstate("LF001" if isolation in (None, READ_COMMITTED) else "40001"):
        present(writer, covering)
        writer.execute(ALL)
    writer.rollback()
    assert bodies(db)[0] == "one"


def test_row_writers_do_not_wait_for_each_other(db: Database, t: str) -> None:
    writers = []
    for key in (1, 2, 3):
        writer = db.connect("app", options="-c lock_timeout=50ms")
        present(writer, acquire(db, f"row:{key}"))
        writer.execute(f"update public.t set body = 'x' where id = {key}")
        writers.append(writer)
    for writer in writers:
        writer.commit()
    assert bodies(db) == ["x"] * 3


def test_a_transaction_cannot_ask_for_what_makes_its_own_claim_stale(db: Database, t: str) -> None:
    covering, writer = acquire(db, "all rows"), db.connect("app")
    present(writer, covering)
    writer.execute(ALL)
    expire(db, covering.resource)
    with sqlstate("LF010") as refused:
        writer.execute("select * from fence.acquire('row:1')")
    assert refused.diag.message_primary == "no new token of 'row:1' beside a claim on 'all rows'"
    writer.rollback()
    row = acquire(db, "row:1")
    present(writer, row)
    writer.execute(ONE)
    with sqlstate("LF010") as refused:
        writer.execute("select * from fence.acquire('all rows')")
    assert refused.diag.message_primary == "no new token of 'all rows' beside a claim on 'row:1'"
    writer.rollback()
    release(db, row)
    present(writer, acquire(db, "row:2"))
    with sqlstate("LF010"):
        writer.execute("select fence.enter('all rows')")


@pytest.mark.parametrize("how", ["presented", "start-up"])
def test_a_claim_on_something_else_is_beside_no_covering_lease(db: Database, t: str, how: str) -> None:
    """A job under a lease of its own, such as a command of pyfence run, enters what covers the rows."""
    acquire(db, "row:1", "1 ms")
    release(db, acquire(db, "all rows"))
    other = acquire(db, "nightly")
    writer = db.connect("app", options=startup(other) if how == "start-up" else "")
    if how == "presented":
        present(writer, other)
    writer.execute("select fence.enter('all rows')")
    assert writer.execute(ALL).rowcount == 3
    writer.commit()
    assert bodies(db) == ["all"] * 3


def test_sql_jobs_enter_the_covering_resource(db: Database, t: str) -> None:
    job = db.connect("app")
    job.execute("select fence.enter('all rows')")
    job.execute("truncate public.t")
    job.commit()
    assert acquire(db, "row:1")


def test_a_row_that_is_entered_just_now_is_waited_for_by_asking_again(db: Database, t: str) -> None:
    expire(db, acquire(db, "row:1").resource)
    other, job = acquire(db, "row:2"), db.connect("app")
    job.execute("select fence.enter('row:1')")
    job.execute(ONE)
    for _ in range(2):
        assert ask(db, "all rows").reason == "draining"
    with sqlstate("LF001"):
        renew(db, other)
    job.execute(ONE)
    job.commit()
    assert acquire(db, "all rows").token > other.token


def test_once_and_the_token_column_go_by_the_covering_claim(db: Database) -> None:
    db.execute("create table public.s (id int primary key, token bigint)")
    protect(db, "public.s", "row:{id}", p_covering="all", p_token_column="token", p_writes="once")
    covering, writer = acquire(db, "all"), db.connect("app")
    present(writer, covering)
    writer.execute("insert into public.s values (1), (2)")
    writer.execute("update public.s set id = id + 10")
    writer.commit()
    assert contents(db, "public.s") == [(11, covering.token), (12, covering.token)]
    present(writer, covering)
    with sqlstate("LF007"):
        writer.execute("delete from public.s")


def test_a_null_key_is_refused_under_a_covering_claim_too(db: Database) -> None:
    db.execute("create table public.n (id int, part int) partition by list (part)")
    db.execute("create table public.n1 partition of public.n for values in (1)")
    protect(db, "public.n", "row:{id}", p_covering="all")
    db.execute("create table public.n2 partition of public.n for values in (2)")
    writer, covering = db.connect("app"), acquire(db, "all")
    for statement in ("insert into public.n values (null, 1)", "insert into public.n2 values (null, 2)"):
        present(writer, covering)
        writer.execute("insert into public.n values (1, 1), (2, 2)")
        with sqlstate("LF005"):
            writer.execute(statement)
        writer.rollback()
    present(writer, covering)
    writer.execute("insert into public.n values (1, 1), (2, 2)")
    writer.execute("update public.n set part = 3 - part")
    writer.execute("truncate public.n")
    writer.commit()


def test_a_key_that_becomes_obligatory_or_no_longer_is_changes_nothing(db: Database) -> None:
    db.execute("create table public.n (id int)")
    protect(db, "public.n", "row:{id}", p_covering="all")
    for change in ("set", "drop"):
        db.execute(f"alter table public.n alter id {change} not null")
        assert db.execute("select code from fence.audit() where severity = 'error'") == []
    writer = db.connect("app")
    present(writer, acquire(db, "all"))
    with sqlstate("LF005"):
        writer.execute("insert into public.n values (null)")


def test_a_renamed_key_column_stops_a_covering_holder_whose_keys_may_be_null(db: Database) -> None:
    db.execute("create table public.n (id int)")
    protect(db, "public.n", "row:{id}", p_covering="all")
    db.execute("alter table public.n rename column id to number")
    writer = db.connect("app")
    present(writer, acquire(db, "all"))
    with sqlstate("LF013"):
        writer.execute("insert into public.n values (1)")


def test_covering_begins_without_harm_to_rows_and_ends_the_present_lease(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    row, held = acquire(db, "u:1"), acquire(db, "nightly")
    protect(db, "public.u", "u:{id}")
    protect(db, "public.u", "u:{id}", p_covering="nightly")
    with sqlstate("LF001"):
        renew(db, held)
    writer = db.connect("app")
    present(writer, row)
    writer.execute("insert into public.u values (1)")
    writer.commit()
    assert acquire(db, "nightly").token > row.token
    protect(db, "public.u", "u:{id}", p_covering="")
    with sqlstate("LF005"):
        present(writer, acquire(db, "u:2"))
        writer.execute("truncate public.u")


def test_protecting_again_with_the_same_covering_resource_ends_no_lease(db: Database, t: str) -> None:
    covering = acquire(db, "all rows")
    protect(db, t, "row:{id}", p_covering="all rows", p_expiry="until_superseded")
    protect(db, t, "row:{id}")
    renew(db, covering)
    writer = db.connect("app")
    present(writer, covering)
    writer.execute(ALL)
    writer.commit()
    assert bodies(db) == ["all"] * 3


def closings(db: Database, resource: str) -> list[Any]:
    """The reasons with which leases on a resource were closed."""
    events = "select coalesce(detail ->> 'reason', event) from fence.history where resource = %s order by id"
    return [reason for (reason,) in db.execute(events, (resource,)) if reason != "granted"]


def test_a_covering_lease_that_was_given_back_is_not_closed_again(db: Database, t: str) -> None:
    covering, writer = acquire(db, "all rows"), db.connect("app")
    present(writer, covering)
    release(db, covering)
    assert ask(db, "row:1").reason == "draining"
    writer.rollback()
    for resource in ("row:1", "row:2"):
        acquire(db, resource)
    assert closings(db, "all rows") == ["released"]


def test_a_second_table_under_a_covering_resource_ends_its_lease(db: Database, t: str) -> None:
    """Whoever holds it was not told about that table, and writers of its rows are under way."""
    covering = acquire(db, "all rows")
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "u:{id}")
    renew(db, covering)
    protect(db, "public.u", "u:{id}", p_covering="all rows")
    with sqlstate("LF001"):
        renew(db, covering)


def test_a_lease_given_back_while_the_covering_one_is_granted_is_not_closed_again(db: Database, t: str) -> None:
    row, releasing = acquire(db, "row:1"), db.connect("app")
    releasing.execute("select fence.release(%s, %s, %s)", row.parameters)
    assert ask(db, "all rows").reason == "draining"
    releasing.commit()
    assert ask(db, "all rows").granted
    assert closings(db, "row:1") == ["released"]


@pytest.mark.parametrize("change", ["renew", "release"])
def test_a_covering_request_waits_for_no_change_of_a_rows_lease(db: Database, t: str, change: str) -> None:
    """Whoever has changed one lease may go on to another one, or to a row, which the request has locked."""
    first, second = acquire(db, "row:1"), acquire(db, "row:2")
    changing = db.connect("app")
    if change == "renew":
        renew(changing, second)
        renew(changing, first)
        assert ask(db, "all rows").reason == "draining"
        present(changing, first)
        changing.execute(ONE)
    else:
        for lease in (second, first):
            changing.execute("select fence.release(%s, %s, %s)", lease.parameters)
            assert ask(db, "all rows").reason == "draining"
    changing.commit()
    assert db.execute("select from fence.history where resource is null and event = 'closed'") == []
    assert ask(db, "row:3").reason == "draining"  # none of them is granted anew meanwhile
    assert ask(db, "all rows").granted


def test_the_first_request_for_a_covering_lease_ends_an_expired_one(db: Database, t: str) -> None:
    """Also where it is not granted yet: nobody writes on after somebody has asked."""
    protect(db, t, "row:{id}", p_covering="all rows", p_expiry="until_superseded")
    late, other = acquire(db, "all rows"), db.connect("app")
    assert ask(other, "row:1").reason == "held"  # and keeps its transaction open
    expire(db, "all rows")
    assert ask(db, "all rows").reason == "draining"
    assert ask(db, "all rows").reason == "draining"
    assert closings(db, "all rows") == ["expired"]
    writer = db.connect("app")
    with sqlstate("LF001"):
        present(writer, late)
    writer.rollback()
    other.rollback()
    assert ask(db, "all rows").granted


def test_an_exempt_writer_and_a_covering_holder_do_not_wait_for_each_other(db: Database, t: str) -> None:
    db.execute("select fence.exempt('public.t', 'outsider', now() + interval '1 hour', 'test')")
    job, exempt = db.connect("app"), db.connect("outsider")
    exempt.execute("set lock_timeout = '2 s'")
    job.execute("select fence.enter('all rows')")
    exempt.execute(ONE)
    job.rollback()
    assert ask(db, "all rows").granted


def test_a_start_up_claim_on_what_covers_the_rows_decides_for_all_of_them(db: Database, t: str) -> None:
    covering = acquire(db, "all rows")
    writer = db.connect("app", options=startup(covering))
    release(db, covering)
    present(writer, acquire(db, "row:1"))
    with sqlstate("LF001"):
        writer.execute(ONE)


def test_a_start_up_claim_that_meets_no_row_keeps_no_covering_request_waiting(db: Database, t: str) -> None:
    """Nothing bounds its idling before it has met a row of its lease."""
    row = acquire(db, "row:1")
    writer = db.connect("app", options=startup(row))
    assert writer.execute("update public.t set body = 'none' where id = 99").rowcount == 0
    assert ask(db, "all rows").granted
    with sqlstate("LF001"):
        writer.execute(ONE)


def test_a_lease_given_back_while_covering_begins_is_not_closed_again(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    held, releasing, owner = acquire(db, "nightly"), db.connect("app"), db.connect("app_owner")
    releasing.execute("select fence.release(%s, %s, %s)", held.parameters)
    protecting = "select fence.protect('public.u', 'u:{id}', p_covering => 'nightly')"
    waiting = db.start_blocked(owner, protecting, by=releasing)
    releasing.commit()
    waiting.result(20)
    owner.commit()
    assert closings(db, "nightly") == ["released"]


def test_a_row_given_back_while_it_is_covered_is_not_closed_again(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "u:{id}")
    row, releasing, owner = acquire(db, "u:1"), db.connect("app"), db.connect("app_owner")
    release(db, acquire(db, "all rows"))
    releasing.execute("select fence.release(%s, %s, %s)", row.parameters)
    protecting = "select fence.protect('public.u', 'u:{id}', p_covering => 'all rows')"
    waiting = db.start_blocked(owner, protecting, by=releasing)
    releasing.commit()
    waiting.result(20)
    owner.commit()
    assert closings(db, "u:1") == ["released"]


def test_protect_waits_for_a_grant_that_knows_nothing_of_the_covering_yet(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    asking, owner = db.connect("app"), db.connect("app_owner")
    asking.execute("select * from fence.acquire('u:1')")
    statement = "select fence.protect('public.u', 'u:{id}', p_covering => 'nightly')"
    protecting = db.start_blocked(owner, statement, by=asking)
    asking.commit()
    protecting.result(20)
    owner.commit()
    ((token,),) = db.execute("select token from fence.leases where resource = 'u:1'")
    assert acquire(db, "nightly").token > token


def test_a_snapshot_that_does_not_know_what_covers_grants_nothing(db: Database) -> None:
    """It would grant a row a token that no covering grant has seen."""
    db.execute("create table public.u (id int primary key)")
    asking = db.connect("app", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    asking.execute("select 1 from public.u")
    protect(db, "public.u", "u:{id}", p_covering="nightly")
    with sqlstate("40001"):
        asking.execute("select * from fence.acquire('u:1')")
    asking.rollback()
    asking.execute("select * from fence.acquire('u:1')")


def test_a_covering_lease_is_not_granted_above_read_committed(
    db: Database, t: str, isolation: psycopg.IsolationLevel
) -> None:
    """A snapshot does not see the rows' leases that were granted after it, and would leave them open."""
    release(db, acquire(db, "all rows"))
    acquire(db, "row:2")
    asking = db.connect("app", isolation=isolation)
    asking.execute("select 1")
    row = acquire(db, "row:1")
    if isolation != READ_COMMITTED:
        for statement in ("select * from fence.acquire('all rows')", "select fence.enter('all rows')"):
            with sqlstate("LF010") as refused:
                asking.execute(statement)
            assert "READ COMMITTED" in str(refused.diag.message_primary)
            assert refused.diag.message_hint == "begin isolation level read committed;"
            asking.rollback()
        renew(db, row)
        asking.isolation_level = READ_COMMITTED
    covering = acquire(asking, "all rows")
    asking.commit()
    assert covering.token > row.token
    with sqlstate("LF001"):
        renew(db, row)


def test_read_uncommitted_is_read_committed(db: Database, t: str) -> None:
    """PostgreSQL makes no difference, so neither the covering grant nor a change of the guard refuses it."""
    asking = db.connect("app_owner", isolation=psycopg.IsolationLevel.READ_UNCOMMITTED)
    asking.execute(
        "select fence.protect('public.t', 'row:{id}', p_covering => 'all rows', p_expiry => 'until_superseded')"
    )
    asking.commit()
    assert acquire(asking, "all rows")


def test_of_many_rows_that_are_asked_for_at_once_only_one_changes_the_covering_token(db: Database, t: str) -> None:
    """The second one looks before the first one commits, and locks after it: the first row's token stays the newest."""
    release(db, acquire(db, "all rows"))
    first, second, gate = db.connect("app"), db.connect("app"), db.connect(SUPERUSER)
    look_and_wait(db, "all rows")
    gate.execute("select pg_advisory_lock(1)")
    second.execute("set pyfence_test.wait = 'on'")
    row = acquire(first, "row:1")
    asking = db.start_blocked(second, "select token from fence.acquire('row:2')", by=gate)
    first.commit()
    gate.execute("select pg_advisory_unlock(1)")
    asking.result(10)
    second.commit()
    ((token,),) = db.execute("select token from fence._lease where resource = 'all rows'", user="fence_owner")
    assert token < row.token


def test_a_writer_whose_snapshot_does_not_know_what_covers_tries_again(
    db: Database, isolation: psycopg.IsolationLevel
) -> None:
    db.execute("create table public.u (id int primary key)")
    protect(db, "public.u", "u:{id}")
    writer, lease = db.connect("app", isolation=isolation), acquire(db, "u:1")
    writer.execute("select 1")
    protect(db, "public.u", "u:{id}", p_covering="nightly")
    present(writer, lease)
    if isolation != READ_COMMITTED:
        with sqlstate("40001"):
            writer.execute("insert into public.u values (1)")
        writer.rollback()
        present(writer, lease)
    writer.execute("insert into public.u values (1)")
    writer.commit()
    assert contents(db, "public.u") == [(1,)]


@pytest.mark.parametrize("how", ["a second table", "taken away and back", "another template"])
def test_what_no_write_would_be_accepted_under_ends_when_it_is_covered(db: Database, t: str, how: str) -> None:
    """An earlier covering grant stands above its token."""
    name = {"a second table": "x:1", "taken away and back": "row:1", "another template": "line:1"}[how]
    table = "public.u" if how == "a second table" else t
    db.execute("create table public.u (id int primary key, body text)")
    protect(db, "public.u", "x:{id}")
    if how == "taken away and back":
        protect(db, t, "row:{id}", p_covering="")
    lease, later = acquire(db, name), name.replace("1", "2")
    release(db, acquire(db, "all rows"))
    kept = acquire(db, later)
    protect(db, table, name.replace("1", "{id}"), p_covering="all rows")
    with sqlstate("LF001"):
        renew(db, lease)
    renew(db, kept)
    writer = db.connect("app")
    for held in (kept, acquire(db, name)):
        present(writer, held)
        writer.execute(
            f"insert into {table} (id) values (%s) on conflict (id) do update set body = 'x'", (held.resource[-1],)
        )
        writer.commit()


@pytest.mark.parametrize("end", [release, lambda db, x: revoke(db, x.resource)])
def test_a_long_first_row_keeps_no_other_row_waiting(db: Database, t: str, end: Any) -> None:
    end(db, acquire(db, "all rows"))
    job = db.connect("app")
    job.execute("select fence.enter('row:1')")
    assert ask(db, "row:2").granted


def test_a_covering_lease_with_the_last_token_can_be_given_back(db: Database, t: str) -> None:
    covering, last = acquire(db, "all rows"), 9223372036854775807
    for table in ("_lease", "_covering"):
        db.execute(f"update fence.{table} set token = {last} where resource = 'all rows'", user="fence_owner")
    release(db, Lease("all rows", last, covering.secret))
    assert db.execute("select token, state from fence.leases where resource = 'all rows'") == [(last, "closed")]


def test_a_covering_lease_released_within_its_writers_transaction(
    db: Database, t: str, isolation: psycopg.IsolationLevel
) -> None:
    covering, writer, late = acquire(db, "all rows"), db.connect("app"), db.connect("app", isolation=isolation)
    late.execute("select 1")
    present(writer, covering)
    writer.execute(ALL)
    writer.execute("select fence.release(%s, %s, %s)", covering.parameters)
    assert ask(db, "row:1").reason in ("held", "draining")
    writer.commit()
    row = acquire(db, "row:1")
    with sqlstate("LF001" if isolation == READ_COMMITTED else "40001"):
        present(late, covering)
        late.execute(ALL)
    assert row.token > covering.token


@pytest.mark.parametrize("writing", [False, True])
def test_a_covering_lease_that_is_renewed_while_a_row_is_asked_for_goes_on(db: Database, t: str, writing: bool) -> None:
    covering, writer = acquire(db, "all rows"), db.connect("app")
    if writing:
        present(writer, covering)
        writer.execute(ALL)
    gate, asking = db.connect(SUPERUSER), db.connect("app")
    look_and_wait(db, "all rows")
    gate.execute("select pg_advisory_lock(1)")
    asking.execute("set pyfence_test.wait = 'on'")
    expire(db, "all rows")
    waiting = db.start_blocked(asking, "select granted, reason from fence.acquire('row:1')", by=gate)
    live = "update fence._lease set expires_at = now() + interval '1 h' where resource = 'all rows'"
    db.execute(live, user="fence_owner")
    gate.execute("select pg_advisory_unlock(1)")
    assert waiting.result(10).fetchall() == [(False, "held")]
    renew(db, covering)  # whoever asked in vain keeps nothing locked, even while its transaction is open
    present(db.connect("app"), covering)
    asking.commit()


def test_two_who_protect_at_once_make_no_cover_of_covers(db: Database, t: str) -> None:
    db.execute("create table public.u (id int primary key)")
    first, second = db.connect("app_owner"), db.connect("app_owner")
    first.execute("select fence.protect('public.t', 'row:{id}', p_covering => 'x:1')")
    waiting = db.start_blocked(second, "select fence.protect('public.u', 'x:{id}', p_covering => 'y')", by=first)
    first.commit()
    with sqlstate("LF010"):
        waiting.result(10)


def test_two_who_ask_for_the_covering_lease_at_once(db: Database, t: str) -> None:
    first = db.connect("app")
    first.execute("select * from fence.acquire('all rows')")
    assert not ask(db, "all rows").granted
    assert ask(db, "row:1").reason == "draining"
    first.commit()
    assert ask(db, "all rows").reason == "held"


@pytest.mark.parametrize("covering", ["row:1", "row:x", "row:", "{x}", "x" * 1025])
def test_names_that_cannot_cover(db: Database, t: str, covering: str) -> None:
    """They are refused before anybody is waited for."""
    granted = db.connect("app")
    granted.execute("select * from fence.acquire('another')")
    with sqlstate("LF010"):
        protect(db, "public.t", "row:{id}", p_covering=covering)


def test_nothing_covers_what_covers_others(db: Database, t: str) -> None:
    db.execute("create table public.u (id text primary key)")
    for template, covering in (("{id}", "x:y"), ("u:{id}", "row:7")):
        with sqlstate("LF010"):
            protect(db, "public.u", template, p_covering=covering)
    protect(db, "public.u", "u:{id}", p_covering="all rows")
    assert acquire(db, "all rows")
    protect(db, "public.t", "row:{id}", p_covering="")
    protect(db, "public.u", "u:{id}", p_covering="row:7")  # nothing covers the rows of that name


@pytest.mark.parametrize("template", ["a.b*c({id})[x]", "{id}", "{{x}}:{id}", "{@schema}.{@table}:{id}", "a b_%:{id}"])
def test_any_template_finds_its_rows(db: Database, template: str) -> None:
    db.execute('create table public."T(x)" (id text primary key)')
    if template == "{{x}}:{id}":
        with sqlstate("LF010"):
            protect(db, 'public."T(x)"', template, p_covering="all:rows")
        return
    protect(db, 'public."T(x)"', template, p_covering="all:rows")
    for key in ("1", "a:b", "%", "é\n", "x{y}"):
        ((name,),) = db.execute("select fence.resource_for('public.\"T(x)\"', %s)", (psycopg.types.json.Jsonb({"id": key}),), user="app")  # fmt: skip  # noqa: E501
        row = acquire(db, name)
        covering = acquire(db, "all:rows")
        with sqlstate("LF001"):
            renew(db, row)
        assert not ask(db, name).granted
        release(db, covering)


def test_an_observed_table_has_a_covering_resource_too(db: Database, t: str) -> None:
    protect(db, "public.t", "row:{id}", p_mode="observe")
    writer = db.connect("app")
    present(writer, acquire(db, "all rows"))
    writer.execute(ALL)
    writer.execute("truncate public.t")
    writer.commit()
    assert db.execute("select count(*) from fence.violations") == [(0,)]


def test_a_row_writer_waits_for_a_job_that_covers_it_before_it_locks_a_row(db: Database, t: str) -> None:
    """The other way round the two would wait for each other, and PostgreSQL would end one of them."""
    row, writer, job = acquire(db, "row:1"), db.connect("app"), db.connect("app")
    job.execute("select fence.enter('all rows')")
    waiting = db.start_blocked(writer, "select fence.present(%s, %s, %s)", row.parameters, by=job)
    job.execute(ALL)
    job.commit()
    with sqlstate("LF001"):
        waiting.result(10)
    writer.rollback()
    assert bodies(db) == ["all"] * 3
