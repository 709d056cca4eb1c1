"""Tokens: how they are made, that they only grow, and where they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, check_refusal, expire, present, protect, release, renew, revoke, supersede
from harness import Database, edit_authority, sqlstate
from psycopg.types.json import Jsonb

BIGGEST = 9223372036854775807


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


def set_token(db: Database, resource: str, token: int) -> None:
    """As the schema's owner, who alone may, and only upwards."""
    db.execute("update fence._lease set token = %s where resource = %s", (token, resource), user="fence_owner")


# -- the number --------------------------------------------------------------------------------------------------------


def test_a_token_is_microseconds_since_1970_above_the_floor(db: Database, report: str) -> None:
    (floor, floor_at), = db.execute("select floor, floor_at from fence._authority", user="fence_owner")  # fmt: skip
    assert floor == round(floor_at.timestamp() * 1_000_000)
    lease = acquire(db, "report:1")
    assert floor <= lease.token < 2**53
    assert len(str(lease.token)) == 16


def test_the_clocks_part_of_a_token_runs_a_hundred_times_slower(db: Database, report: str) -> None:
    """So that a lineage that began later lies above whatever an older one still grants."""
    ((before,),) = db.execute("select clock_timestamp()")
    for days in (1, 1000):
        edit_authority(db.url("fence_owner"), f"floor_at = floor_at - {days} * interval '1 day'")
    (floor, floor_at), = db.execute("select floor, floor_at from fence._authority", user="fence_owner")  # fmt: skip
    token = acquire(db, "report:1").token
    elapsed = (before - floor_at).total_seconds() * 1_000_000
    assert floor + elapsed / 100 <= token <= floor + elapsed / 100 + 200_000


def test_a_clock_behind_the_floor_gives_the_floor(db: Database, report: str) -> None:
    edit_authority(db.url("fence_owner"), "floor_at = floor_at + interval '1 year'")
    ((floor,),) = db.execute("select floor from fence._authority", user="fence_owner")
    first = acquire(db, "report:1")
    assert first.token == floor
    assert supersede(db, first).token == floor + 1


def test_tokens_grow_whatever_ended_the_lease(db: Database, report: str) -> None:
    tokens = [acquire(db, "report:1")]
    for end in (release, lambda db, lease: revoke(db, lease.resource), lambda db, lease: expire(db, lease.resource)):
        end(db, tokens[-1])
        tokens.append(acquire(db, "report:1"))
    numbers = [lease.token for lease in tokens]
    assert numbers == sorted(set(numbers))
    assert len({lease.secret for lease in tokens}) == len(tokens)
    history = db.execute("select token from fence.history where event = 'granted' order by id")
    assert [token for (token,) in history] == numbers


def test_resources_have_tokens_of_their_own(db: Database, report: str) -> None:
    first = acquire(db, "report:1")
    set_token(db, "report:1", BIGGEST - 5)
    assert acquire(db, "report:2").token < 2**53
    expire(db, "report:1")
    assert acquire(db, "report:1").token == BIGGEST - 4 > first.token


# -- rolled back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known name", "first time"])
def test_a_token_of_a_rolled_back_transaction_is_worth_nothing(
    db: Database, report: str, known: bool, isolation: psycopg.IsolationLevel
) -> None:
    if known:
        supersede(db, acquire(db, "report:1"))
        expire(db, "report:1")
    doomed = db.connect("app", isolation=isolation)
    lost = acquire(doomed, "report:1")
    doomed.rollback()
    writer = db.connect("app", isolation=isolation)
    with pytest.raises(psycopg.DatabaseError) as refusal:
        present(writer, lost)
    assert refusal.value.sqlstate == "LF006"
    writer.rollback()
    granted = acquire(db, "report:1")
    for lease in (lost, replace(lost, token=granted.token), replace(granted, secret=lost.secret)):
        with pytest.raises(psycopg.DatabaseError) as refusal:
            present(writer, lease)
        assert refusal.value.sqlstate in ("LF001", "LF006")
        writer.rollback()
    present(writer, granted)
    assert writer.execute("update public.report set body = 'new'").rowcount == 1


def test_the_same_number_with_another_secret_is_another_claim(db: Database, report: str) -> None:
    """Forced to meet: above the clock's part the next number is the last and one."""
    acquire(db, "report:1")
    set_token(db, "report:1", 2**60)
    expire(db, "report:1")
    doomed = db.connect("app")
    lost = acquire(doomed, "report:1")
    doomed.rollback()
    granted = acquire(db, "report:1")
    assert granted.token == lost.token == 2**60 + 1
    assert granted.secret != lost.secret
    writer = db.connect("app")
    with sqlstate("LF006"):
        present(writer, lost)
    writer.rollback()
    assert not release(db, lost)
    with sqlstate("LF006"):
        renew(db, lost)
    present(writer, granted)


def test_a_claim_within_the_transaction_that_acquired_it(db: Database, report: str) -> None:
    """Works, for what it is worth: nobody else sees the lease before the commit."""
    both = db.connect("app")
    lease = acquire(both, "report:1")
    present(both, lease)
    assert both.execute("update public.report set body = 'new'").rowcount == 1
    both.rollback()
    assert acquire(db, "report:1").token > 0


def test_a_transaction_that_writes_under_a_token_cannot_take_the_next(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    writer.execute("update public.report set body = 'new'")
    expire(db, "report:1")
    with sqlstate("LF010"):
        acquire(writer, "report:1")


# -- the ends of the range ---------------------------------------------------------------------------------------------


def test_above_two_to_the_53rd_every_digit_counts(db: Database, report: str) -> None:
    acquire(db, "report:1")
    set_token(db, "report:1", 2**53)
    expire(db, "report:1")
    lease = acquire(db, "report:1")
    assert lease.token == 2**53 + 1
    writer = db.connect("app")
    for wrong in (2**53, 2**53 + 2):
        with pytest.raises(psycopg.DatabaseError) as refusal:
            present(writer, replace(lease, token=wrong))
        assert refusal.value.sqlstate in ("LF001", "LF006")
        writer.rollback()
    present(writer, lease)
    assert writer.execute("update public.report set body = 'new'").rowcount == 1
    assert db.execute("select token from fence.leases", user="monitor") == [(2**53 + 1,)]
    assert db.execute("select to_jsonb(l) ->> 'token' from fence.leases l", user="monitor") == [("9007199254740993",)]


def test_the_last_token_is_granted_and_then_it_says_so(db: Database, report: str) -> None:
    acquire(db, "report:1")
    set_token(db, "report:1", BIGGEST - 1)
    expire(db, "report:1")
    last = acquire(db, "report:1")
    assert last.token == BIGGEST
    writer = db.connect("app")
    present(writer, last)
    assert writer.execute("update public.report set body = 'last'").rowcount == 1
    writer.commit()
    renew(db, last)
    assert ask(db, "report:1").reason == "held"
    expire(db, "report:1")
    for _ in range(2):
        with sqlstate("LF009") as refused:
            ask(db, "report:1")
        check_refusal(refused.diag)
    assert "exhausted" in refused.diag.message_primary
    with sqlstate("LF002"):
        renew(db, last)
    assert db.execute("select token, state from fence.leases", user="monitor") == [(BIGGEST, "expired")]
    assert revoke(db, "report:1")
    assert acquire(db, "report:2").token > 0, "only that resource"


@pytest.mark.parametrize("cast", ["smallint", "int", "bigint", "text"])
def test_small_tokens_come_in_any_integer_type(db: Database, report: str, cast: str) -> None:
    edit_authority(db.url("fence_owner"), "floor = 42, floor_at = clock_timestamp() + interval '1 day'")
    lease = acquire(db, "report:1")
    assert lease.token == 42
    writer = db.connect("app")
    literal = "'42'" if cast == "text" else f"42::{cast}"
    writer.execute(f"select fence.present('report:1', {literal}, %s)", (lease.secret,))
    assert writer.execute("update public.report set body = 'new'").rowcount == 1


# -- lineages ----------------------------------------------------------------------------------------------------------


def test_a_lease_of_an_older_lineage_is_dead(db: Database, report: str, isolation: psycopg.IsolationLevel) -> None:
    lease = acquire(db, "report:1")
    edit_authority(db.url("fence_owner"), "lineage = lineage + 1")
    writer = db.connect("app", isolation=isolation)
    with sqlstate("LF001"):
        present(writer, lease)
    writer.rollback()
    with sqlstate("LF001"):
        renew(db, lease)
    assert not release(db, lease)
    ((_, _, code),) = db.execute(
        "select * from fence.renew_all(%s, %s, %s, null)", ([lease.resource], [lease.token], [lease.secret]), user="app"
    )
    assert code == "LF001"
    assert db.execute("select state from fence.leases", user="monitor") == [("superseded lineage",)]
    newer = acquire(db, "report:1")
    assert newer.token > lease.token
    present(writer, newer)
    assert writer.execute("update public.report set body = 'new'").rowcount == 1


# -- who holds it ------------------------------------------------------------------------------------------------------


def lease_row(db: Database) -> list[Any]:
    return db.execute("select ctid, xmin, l.* from fence._lease l order by resource", user="fence_owner")


def test_an_old_holder_touches_nothing_of_its_successor(db: Database, report: str) -> None:
    old = acquire(db, "report:1")
    new = supersede(db, old)
    before = lease_row(db)
    assert release(db, old) is False
    assert release(db, replace(new, secret=old.secret)) is False
    assert release(db, replace(old, secret=new.secret)) is False
    for wrong, code in (
        (old, "LF001"),
        (replace(new, secret=old.secret), "LF006"),
        (replace(new, token=BIGGEST), "LF006"),
    ):
        with sqlstate(code):
            renew(db, wrong)
    ((_, expires, code),) = db.execute(
        "select * from fence.renew_all(%s, %s, %s, '1 h')", ([old.resource], [old.token], [old.secret]), user="app"
    )
    assert (expires, code) == (None, "LF001")
    assert lease_row(db) == before
    writer = db.connect("app")
    present(writer, new)
    assert writer.execute("update public.report set body = 'new'").rowcount == 1


def test_an_expired_lease_is_not_revived_but_its_number_stays_until_somebody_asks(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    expire(db, "report:1")
    with sqlstate("LF002") as refused:
        renew(db, lease)
    check_refusal(refused.diag, secrets=[lease.secret])
    assert db.execute("select state, token from fence.leases", user="monitor") == [("expired", lease.token)]
    assert release(db, lease) is True
    assert release(db, lease) is False


def test_acquire_is_not_re_entrant(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    again = ask(db, "report:1")
    assert (again.granted, again.reason, again.owner, again.secret) == (False, "held", "tester", None)
    renew(db, lease)
    session = db.connect("app")
    assert acquire(session, "report:2").token > 0
    assert not ask(session, "report:2").granted


def test_renew_all_answers_for_each(db: Database, report: str) -> None:
    good, expired = acquire(db, "report:1"), acquire(db, "report:2")
    old = acquire(db, "report:3")
    supersede(db, old)
    revoked = acquire(db, "report:4")
    expire(db, "report:2")
    revoke(db, "report:4")
    asked = [good, expired, old, revoked, replace(good, secret="x"), Lease("report:9", 1, "x"), good]
    busy = acquire(db, "report:5")
    keeper = db.connect("app")
    renew(keeper, busy)
    asked.append(busy)
    rows = db.execute(
        "select resource, code, expires_at > clock_timestamp() from fence.renew_all(%s, %s, %s, null)",
        ([x.resource for x in asked], [x.token for x in asked], [x.secret for x in asked]),
        user="app",
    )
    assert [row[:2] for row in rows] == [
        ("report:1", None),
        ("report:2", "LF002"),
        ("report:3", "LF001"),
        ("report:4", "LF001"),
        ("report:1", "LF006"),
        ("report:9", "LF006"),
        ("report:1", None),
        ("report:5", "55P03"),
    ]
    assert [row[2] for row in rows if row[1] is None] == [True, True]
    nulls = db.execute(
        "select code from fence.renew_all('{report:1,null,report:1}', '{1,1,null}', '{null,x,x}', '1 s')", user="app"
    )
    assert nulls == [("LF010",)] * 3
    assert db.execute("select * from fence.renew_all('{}', '{}', '{}', null)", user="app") == []


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue", "Europe/Berlin"])
def test_the_sessions_time_zone_shifts_nothing(db: Database, report: str, zone: str) -> None:
    """A day is 86,400 seconds, also where the clocks change in it."""
    there = db.connect("app", autocommit=True, options=f"-c TimeZone={zone}")
    for ttl, seconds in (("1 day", 86400), ("24 hours", 86400), ("30 s", 30)):
        name = f"zone:{zone}:{ttl}"
        acquire(there, name, ttl)
        ((left,),) = db.execute(
            "select extract(epoch from expires_at - clock_timestamp()) from fence.leases where resource = %s",
            (name,),
            user="monitor",
        )
        assert seconds - 5 < left <= seconds
        assert not ask(db, name).granted
    columns = db.execute(
        "select attrelid::regclass::text, attname::text from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "where c.relnamespace = 'fence'::regnamespace and atttypid = 'timestamp'::regtype"
    )
    assert columns == []


def test_a_day_across_a_change_of_the_clocks(db: Database, report: str) -> None:
    """Reckoned where it would matter: 30 January 2027 has no change in it, 13 to 14 March has one in New York."""
    ((exact,),) = db.execute("select fence._ttl('1 day')::text", user="fence_owner")
    assert exact == "24:00:00"


def test_the_history_tells_who_and_never_a_secret(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    release(db, lease)
    acquire(db, "report:1")
    revoke(db, "report:1")
    rows = db.execute(
        "select event, resource, owner, role, detail from fence.history where resource is not null order by id"
    )
    assert [(event, role) for event, _, _, role, _ in rows] == [
        ("granted", "app"),
        ("closed", "app"),
        ("granted", "app"),
        ("closed", "app_owner"),
    ]
    assert "test" in str(Jsonb(rows[-1][4]).obj)
    assert lease.secret not in str(rows)
