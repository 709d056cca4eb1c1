"""A claim lives exactly as long as the transaction, or the savepoint, that presented it, and cannot be made up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy
from guards.scene import Lease, acquire, ask, claims, contents, expire, forge, present, protect, put_claims, supersede
from harness import Connection, Database, sqlstate
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

UPDATE = "update public.report set body = 'new' where id = 1"


@pytest.fixture
def report(db: Database) -> str:
    """Two rows, a resource each, and a table of one resource."""
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old'), (2, 'old')")
    db.execute("create table public.ledger (id int primary key, body text)")
    db.execute("insert into public.ledger values (1, 'old')")
    protect(db, "public.report", "report:{id}")
    protect(db, "public.ledger", "ledger")
    return "public.report"


@pytest.fixture
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1")


def refused(connection: Connection, code: str = "LF004", statement: str = UPDATE) -> None:
    with sqlstate(code):
        connection.execute(statement)


# -- how long it lives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_claim_ends_with_its_transaction(
    db: Database, lease: Lease, ending: str, isolation: psycopg.IsolationLevel
) -> None:
    connection = db.connect("app", isolation=isolation)
    present(connection, lease)
    connection.execute(UPDATE)
    getattr(connection, ending)()
    assert connection.execute("select current_setting('fence.claims', true)").fetchall() == [("",)]
    refused(connection)


def test_a_claim_presented_outside_a_transaction_is_over_with_the_call(db: Database, lease: Lease) -> None:
    connection = db.connect("app", autocommit=True)
    present(connection, lease)
    with sqlstate("LF004") as refusal:
        connection.execute(UPDATE)
    assert "present" in refusal.diag.message_hint
    with connection.transaction():
        refused(connection)


def test_a_claim_does_not_pass_through_a_pool(db: Database, lease: Lease) -> None:
    with ConnectionPool(db.url("app"), min_size=1, max_size=1, open=True) as pool:
        with pool.connection() as connection:
            present(connection, lease)
            connection.execute(UPDATE)
        with suppress(ZeroDivisionError), pool.connection() as connection:
            present(connection, lease)
            raise ZeroDivisionError
        with pool.connection() as connection:
            refused(connection)
            connection.rollback()
            connection.autocommit = True
            present(connection, lease)
            refused(connection)
            connection.autocommit = False


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"])
def test_a_claim_does_not_pass_through_an_engine(db: Database, lease: Lease, level: str) -> None:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        connect_args=conninfo_to_dict(db.url("app")),
        pool_size=1,
        max_overflow=0,
        isolation_level=level,
    )
    show = sqlalchemy.text("select fence.present(:resource, :token, :secret)")
    values = {"resource": lease.resource, "token": lease.token, "secret": lease.secret}
    with engine.connect() as connection:
        connection.execute(show, values)
        if level != "AUTOCOMMIT":
            connection.execute(sqlalchemy.text(UPDATE))
        connection.commit()
    with engine.connect() as connection, sqlstate("LF004"):
        connection.execute(sqlalchemy.text(UPDATE))
    engine.dispose()


def test_a_savepoint_takes_its_claim_and_its_lock_back(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    connection = db.connect("app", isolation=isolation)
    connection.execute("savepoint a")
    present(connection, lease)
    connection.execute(UPDATE)
    connection.execute("rollback to savepoint a")
    connection.execute("savepoint b")
    refused(connection)
    connection.execute("rollback to savepoint b")
    expire(db, "report:1")
    assert ask(db, "report:1").granted, "the lock went with the savepoint"


def test_a_released_savepoint_keeps_its_claim(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> None:
    connection = db.connect("app", isolation=isolation)
    connection.execute("savepoint a")
    present(connection, lease)
    connection.execute("release savepoint a")
    connection.execute(UPDATE)
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    connection.commit()


def test_a_savepoint_brings_the_earlier_claims_back_and_no_more(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    present(connection, lease)
    connection.execute("savepoint a")
    present(connection, acquire(db, "report:2"))
    assert connection.execute("update public.report set body = 'new'").rowcount == 2
    connection.execute("rollback to savepoint a")
    assert connection.execute(UPDATE).rowcount == 1
    refused(connection, "LF005", "update public.report set body = 'new'")


def test_a_plpgsql_block_that_fails_takes_its_claim_back(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    statement = """
        do $$
        begin
          begin
            perform fence.present(%L, %L::bigint, %L);
            update public.report set body = 'new' where id = 1;
            raise division_by_zero;
          exception when division_by_zero then
          end;
          update public.report set body = 'stolen' where id = 1;
        end $$
    """
    ((block,),) = connection.execute(
        "select format(%s, %s::text, %s::text, %s::text)", (statement, *lease.parameters)
    ).fetchall()
    refused(connection, "LF004", block)
    connection.rollback()
    assert (1, "old") in contents(db, "public.report")


def test_swallowing_a_refusal_stores_nothing(db: Database, lease: Lease, isolation: psycopg.IsolationLevel) -> None:
    """The statement that was refused is taken back as a whole, whoever catches the error."""
    connection = db.connect("app", isolation=isolation)
    present(connection, lease)
    connection.execute(
        """
        do $$
        begin
          update public.report set body = 'new' where id = 1;
          begin
            update public.report set body = 'stolen';
          exception when others then
          end;
        end $$
        """
    )
    connection.commit()
    assert contents(db, "public.report") == [(1, "new"), (2, "old")]


def test_a_renewal_taken_back_with_a_savepoint_leaves_the_claim_locked(db: Database, lease: Lease) -> None:
    """The stronger lock of the savepoint goes, the share of the transaction stays."""
    connection = db.connect("app")
    present(connection, lease)
    connection.execute("savepoint a")
    connection.execute("select fence.renew(%s, %s, %s)", lease.parameters)
    connection.execute("rollback to savepoint a")
    connection.execute(UPDATE)
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"


def test_a_prepared_transaction_keeps_its_claim_locked(db: Database, lease: Lease) -> None:
    connection = db.connect("app", autocommit=True)
    connection.execute("begin")
    present(connection, lease)
    connection.execute(UPDATE)
    connection.execute("prepare transaction 'guarded'")
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining"
    connection.execute("commit prepared 'guarded'")
    assert (1, "new") in contents(db, "public.report")
    assert ask(db, "report:1").granted


def test_a_transaction_that_clears_the_setting_has_dropped_its_claims(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    present(connection, lease)
    put_claims(connection, "")
    refused(connection)


# -- several claims ----------------------------------------------------------------------------------------------------


def test_several_claims_hold_together_in_any_order(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    connection = db.connect("app", isolation=isolation)
    leases = [acquire(db, name) for name in ("ledger", "report:2")]
    present(connection, *leases, lease, *leases)
    assert connection.execute("update public.report set body = 'new'").rowcount == 2
    assert connection.execute("update public.ledger set body = 'new'").rowcount == 1


def test_present_all_is_all_or_nothing(db: Database, lease: Lease) -> None:
    bad = replace(acquire(db, "report:2"), secret="f" * 32)
    connection = db.connect("app")
    connection.execute("savepoint a")
    with sqlstate("LF006"):
        connection.execute(
            "select fence.present_all(%s, %s, %s)",
            ([lease.resource, bad.resource], [lease.token, bad.token], [lease.secret, bad.secret]),
        )
    connection.execute("rollback to savepoint a")
    refused(connection)


def test_present_all_with_no_claims_claims_nothing(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    connection.execute("select fence.present_all('{}', '{}', '{}')")
    refused(connection)


def test_two_tables_may_share_a_resource(db: Database, lease: Lease) -> None:
    protect(db, "public.ledger", "report:{id}")
    connection = db.connect("app")
    present(connection, lease)
    assert connection.execute("update public.ledger set body = 'new'").rowcount == 1
    assert connection.execute(UPDATE).rowcount == 1


# -- making one up -----------------------------------------------------------------------------------------------------

MADE_UP: dict[str, Callable[[Connection, Lease], str]] = {
    "empty": lambda connection, lease: "",
    "blanks": lambda connection, lease: "   ",
    "newlines": lambda connection, lease: "\n\n",
    "number": lambda connection, lease: "42",
    "number and letters": lambda connection, lease: "42abc",
    "negative": lambda connection, lease: "-1",
    "the token": lambda connection, lease: str(lease.token),
    "json": lambda connection, lease: '{"report:1": 9223372036854775807}',
    "ten megabytes": lambda connection, lease: "x" * 10_000_000,
    "ten megabytes of claims": lambda connection, lease: claims(connection, *[lease] * 5) + "\n00 1 x -\n" * 1_000_000,
    "percent signs and quotes": lambda connection, lease: "%s%I%L';drop table public.report;--",
}


@pytest.mark.parametrize("kind", [kind for kind in MADE_UP if kind != "ten megabytes of claims"])
@pytest.mark.parametrize("local", [True, False], ids=["local", "session"])
def test_a_made_up_setting_is_no_claim(db: Database, lease: Lease, kind: str, local: bool) -> None:
    connection = db.connect("app")
    put_claims(connection, MADE_UP[kind](connection, lease), local=local)
    if not local:
        connection.commit()
    refused(connection)
    connection.rollback()
    refused(connection, "LF004", "update public.ledger set body = 'new'")
    connection.rollback()
    present(connection, lease)
    assert connection.execute(UPDATE).rowcount == 1, "and does not keep the true one out"


def test_a_huge_setting_of_the_right_form_does_no_harm(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    put_claims(connection, MADE_UP["ten megabytes of claims"](connection, lease))
    refused(connection, "LF005", "update public.report set body = 'new' where id = 2")


@pytest.mark.parametrize("tail", ["", "garbage", "\n", "\n\n", "\n \n", " ", "\nzz 1 x -\n", "\n" + "7" * 100])
def test_the_right_transaction_with_garbage_behind_it_is_no_claim(db: Database, lease: Lease, tail: str) -> None:
    connection = db.connect("app")
    put_claims(connection, claims(connection) + tail)
    with pytest.raises(psycopg.DatabaseError) as refusal:
        connection.execute(UPDATE)
    assert refusal.value.sqlstate in ("LF004", "LF005")
    connection.rollback()
    assert (1, "old") in contents(db, "public.report")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"secret": "0" * 32}, "LF006"),
        ({"secret": ""}, "LF006"),
        ({"secret": "\\x"}, "LF006"),
        ({"token": 9223372036854775807}, "LF006"),
        ({"token": 10**30}, "LF006"),
        ({"token": -1}, "LF006"),
        ({"token": 0}, "LF001"),
        ({"token": 1}, "LF001"),
        ({"resource": "report:2"}, "LF005"),
        ({"resource": "ledger"}, "LF005"),
        ({"resource": ""}, "LF005"),
    ],
    ids=str,
)
def test_a_forged_claim_is_refused(
    db: Database, lease: Lease, change: dict[str, object], code: str, isolation: psycopg.IsolationLevel
) -> None:
    before = contents(db, "public.report")
    connection = db.connect("app", isolation=isolation)
    forge(connection, replace(lease, **change))
    refused(connection, code)
    connection.rollback()
    assert contents(db, "public.report") == before
    renewed = db.execute("select fence.renew(%s, %s, %s)", lease.parameters, user="app")
    assert renewed, "and the holder is not locked out"


@pytest.mark.parametrize("token", ["1e3", "+5", " 5", "5.0", "five", "", "\u0663", "0x10", "9" * 400])
def test_a_token_that_is_no_number_is_refused(db: Database, lease: Lease, token: str) -> None:
    connection = db.connect("app")
    text = claims(connection, lease).replace(f" {lease.token} ", f" {token} ")
    put_claims(connection, text)
    with pytest.raises(psycopg.DatabaseError) as refusal:
        connection.execute(UPDATE)
    assert refusal.value.sqlstate in ("LF005", "LF006")


def test_leading_zeros_do_not_make_another_token(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    put_claims(connection, claims(connection, lease).replace(f" {lease.token} ", f" 0{lease.token} "))
    refused(connection, "LF006")


def test_a_claim_pasted_under_another_resource_is_refused(db: Database, lease: Lease) -> None:
    """Token and secret are right, for something else."""
    acquire(db, "report:2")
    connection = db.connect("app")
    forge(connection, lease, replace(lease, resource="report:2"))
    with pytest.raises(psycopg.DatabaseError) as refusal:
        connection.execute("update public.report set body = 'stolen' where id = 2")
    assert refusal.value.sqlstate in ("LF001", "LF006")


def test_another_transactions_setting_is_no_claim(db: Database, lease: Lease) -> None:
    holder, thief = db.connect("app"), db.connect("outsider")
    present(holder, lease)
    ((stolen,),) = holder.execute("select current_setting('fence.claims')").fetchall()
    put_claims(thief, stolen)
    refused(thief)
    thief.rollback()
    put_claims(thief, stolen, local=False)
    thief.commit()
    holder.commit()
    refused(thief)


def test_a_copy_of_a_setting_within_its_transaction_is_still_verified(db: Database, lease: Lease) -> None:
    """Kept over a savepoint, it names a lease that is not locked any more: the guard locks it, or refuses."""
    connection = db.connect("app")
    connection.execute("savepoint a")
    present(connection, lease)
    ((kept,),) = connection.execute("select current_setting('fence.claims')").fetchall()
    connection.execute("rollback to savepoint a")
    newer = supersede(db, lease)
    put_claims(connection, kept)
    refused(connection, "LF001")
    connection.rollback()
    forge(connection, newer)
    connection.execute(UPDATE)
    expire(db, "report:1")
    assert ask(db, "report:1").reason == "draining", "a claim that only the guard has seen holds its lease too"


def test_present_refuses_what_is_not_the_present_claim(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    newer = supersede(db, lease)
    connection = db.connect("app", isolation=isolation)
    for wrong, code in (
        (lease, "LF001"),
        (replace(newer, secret=lease.secret), "LF006"),
        (replace(newer, token=newer.token + 1), "LF006"),
        (replace(newer, token=9223372036854775807), "LF006"),
        (replace(newer, resource="report:77"), "LF006"),
        (replace(newer, secret=newer.secret + " -\n"), "LF006"),
        (replace(newer, secret=newer.secret + " "), "LF006"),
        (replace(newer, secret=newer.secret.upper()), "LF006"),
    ):
        if wrong == newer:
            continue
        with sqlstate(code):
            present(connection, wrong)
        connection.rollback()
    present(connection, newer)
    assert connection.execute(UPDATE).rowcount == 1


def test_a_secret_cannot_smuggle_in_a_second_claim(db: Database, lease: Lease) -> None:
    """A secret with line ends in it must not be read as further claims."""
    victim = acquire(db, "report:2")
    item = f"\n{victim.resource.encode().hex()} {victim.token} {'0' * 32} -\n"
    connection = db.connect("app")
    with sqlstate("LF006"):
        present(connection, replace(lease, secret=lease.secret + " -\n" + item))


# -- a claim and the rest of the session -------------------------------------------------------------------------------


def test_presenting_bounds_how_long_the_transaction_may_idle(db: Database, lease: Lease) -> None:
    connection = db.connect("app")
    show = "select current_setting('idle_in_transaction_session_timeout')"
    present(connection, lease)
    assert connection.execute(show).fetchall() == [("30s",)]
    connection.rollback()
    assert connection.execute(show).fetchall() == [("0",)]
    connection.execute("set local idle_in_transaction_session_timeout = '5s'")
    present(connection, lease)
    assert connection.execute(show).fetchall() == [("5s",)], "the session's own shorter limit stays"
    connection.rollback()
    present(connection, lease, acquire(db, "report:2", "10 s"))
    assert connection.execute(show).fetchall() == [("10s",)]


def test_no_public_view_shows_a_secret(db: Database, lease: Lease) -> None:
    for view in ("leases", "history", "protected_tables"):
        rows = db.execute(f"select * from fence.{view} as v", user="monitor")
        assert rows or view == "protected_tables"
        assert lease.secret not in str(rows)
    ((kept,),) = db.execute(
        "select secret_hash::text from fence._lease where resource = 'report:1'", user="fence_owner"
    )
    assert lease.secret not in kept
    assert lease.secret.encode().hex() not in kept


def test_a_transaction_that_presented_a_token_is_not_granted_the_next_one(db: Database) -> None:
    """Its earlier writes would pass for those of the new generation."""
    lease = acquire(db, "report:1")
    connection = db.connect("app")
    present(connection, lease)
    expire(db, lease.resource)
    with sqlstate("LF010") as refused, connection.transaction():
        connection.execute("select * from fence.acquire('report:1')")
    assert refused.diag.message_primary == "no new token of 'report:1' beside a claim on 'report:1'"
    connection.rollback()
    assert acquire(connection, lease.resource).token > lease.token
