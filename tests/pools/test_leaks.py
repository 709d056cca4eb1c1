"""A claim ends with its transaction: whoever gets the connection next has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from guards.scene import Lease, check_refusal
from harness import Database, sqlstate
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool
from sqlalchemy.pool import QueuePool

import pyfence

PRESENT = "select fence.present(%s, %s, %s)"
UPDATE = "update public.report set body = 'new' where id = 1"
STEAL = "update public.report set body = 'stolen' where id = 1"

Driver = psycopg.Connection[Any]
#: Gives a connection of a pool of one, and takes it back when the block ends.
Borrow = Callable[[], Any]


class Mishap(Exception):
    """What goes wrong in a job, between present and write."""


def commits(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute(UPDATE)
    conn.commit()


def rolls_back(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute(UPDATE)
    conn.rollback()


def forgets(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute(UPDATE)


def presents_alone(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)


def raises(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    raise Mishap


def fails_in_sql(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute("select 1 / 0")


def is_refused(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute("update public.report set body = 'new'")


def keeps_a_savepoint(conn: Driver, lease: Lease) -> None:
    conn.execute(PRESENT, lease.parameters)
    conn.execute("savepoint a")
    conn.execute(UPDATE)
    conn.execute("release savepoint a")
    conn.commit()


def copies_its_claim(conn: Driver, lease: Lease) -> None:
    """Into the session, where it outlives the transaction: it is another transaction's there, and so nobody's."""
    conn.execute(PRESENT, lease.parameters)
    ((claims,),) = conn.execute("select current_setting('fence.claims')").fetchall()
    conn.commit()
    conn.execute("select set_config('fence.claims', %s, false)", (claims,))
    conn.commit()


JOBS = [
    commits,
    rolls_back,
    forgets,
    presents_alone,
    raises,
    fails_in_sql,
    is_refused,
    keeps_a_savepoint,
    copies_its_claim,
]


@contextmanager
def psycopg_pool(url: str, **options: Any) -> Iterator[Borrow]:
    with ConnectionPool(url, min_size=1, max_size=1, open=True, **options) as pool:
        yield pool.connection


@contextmanager
def queue_pool(url: str, **options: Any) -> Iterator[Borrow]:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        connect_args=conninfo_to_dict(url),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        **options,
    )

    @contextmanager
    def borrow() -> Iterator[Any]:
        fairy = engine.raw_connection()
        try:
            yield fairy.driver_connection
        finally:
            fairy.close()

    yield borrow
    engine.dispose()


POOLS = {
    "psycopg_pool": lambda url: psycopg_pool(url),
    "psycopg_pool that resets nothing": lambda url: psycopg_pool(url, reset=None),
    "QueuePool": lambda url: queue_pool(url),
}


@pytest.fixture(params=list(POOLS))
def borrow(request: pytest.FixtureRequest, db: Database) -> Iterator[Borrow]:
    with POOLS[request.param](db.url("app")) as borrow:
        yield borrow


def expect_no_claim(borrow: Borrow, pid: int) -> None:
    with borrow() as conn:
        assert conn.info.backend_pid == pid, "the same connection"
        with sqlstate("LF004") as refused:
            conn.execute(STEAL)
        check_refusal(refused.diag, table="report")
        conn.rollback()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_the_next_one_has_no_claim(borrow: Borrow, lease: Lease, job: Callable[[Driver, Lease], None]) -> None:
    pid = 0
    try:
        with borrow() as conn:
            pid = conn.info.backend_pid
            job(conn, lease)
    except (Mishap, psycopg.DatabaseError):
        pass
    expect_no_claim(borrow, pid)
    with borrow() as conn:
        ((timeout,),) = conn.execute("select current_setting('idle_in_transaction_session_timeout')").fetchall()
        assert timeout == "0", "nor the bound on idling"
        conn.rollback()
        commits(conn, lease)


def test_the_products_own_transactions_leave_nothing_behind(db: Database, lease: Lease) -> None:
    with ConnectionPool(db.url("app"), min_size=1, max_size=1, open=True) as pool, pyfence.Fence(pool) as fence:
        own = fence.acquire("report:2")
        with own.transaction() as conn:
            pid = conn.info.backend_pid
            conn.execute("update public.report set body = 'new' where id = 2")
        expect_no_claim(pool.connection, pid)
        with pytest.raises(Mishap), own.transaction() as conn:
            raise Mishap
        expect_no_claim(pool.connection, pid)
        assert own.fenced_update("public.report", {"id": 2}, {"body": "newer"}) == 1
        expect_no_claim(pool.connection, pid)
        with pytest.raises(pyfence.WrongResource):
            own.fenced_update("public.report", {"id": 1}, {"body": "newer"})
        expect_no_claim(pool.connection, pid)


# -- autocommit --------------------------------------------------------------------------------------------------------


def test_presenting_in_autocommit_is_a_refusal_with_a_hint(db: Database, lease: Lease) -> None:
    """By hand, the claim is gone with its own statement; by the client, it is refused before that."""
    claim = pyfence.Claim(*lease.parameters)
    with ConnectionPool(db.url("app"), min_size=1, max_size=1, open=True, kwargs={"autocommit": True}) as pool:
        with pool.connection() as conn:
            conn.execute(PRESENT, lease.parameters)
            with sqlstate("LF004") as refused:
                conn.execute(STEAL)
            assert "transaction" in refused.diag.message_hint
            with pytest.raises(pyfence.BadArgument) as bad:
                pyfence.present(conn, claim)
            assert "transaction" in str(bad.value.hint)
            with conn.transaction():
                pyfence.present(conn, claim)
                assert conn.execute(UPDATE).rowcount == 1
            with sqlstate("LF004"):
                conn.execute(STEAL)
        with pool.connection() as conn, sqlstate("LF004"):
            conn.execute(STEAL)


@pytest.mark.parametrize("level", ["AUTOCOMMIT", None], ids=["engine", "connection"])
def test_presenting_in_sqlalchemys_autocommit(db: Database, lease: Lease, level: str | None) -> None:
    claim = pyfence.Claim(*lease.parameters)
    options = {} if level is None else {"isolation_level": level}
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", connect_args=conninfo_to_dict(db.url("app")), pool_size=1, max_overflow=0, **options
    )
    present = sqlalchemy.text("select fence.present(:resource, :token, :secret)")
    values = {"resource": lease.resource, "token": lease.token, "secret": lease.secret}
    pids = set()

    def pid(conn: sqlalchemy.Connection) -> int:
        driver: Any = conn.connection.driver_connection
        return int(driver.info.backend_pid)

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        pids.add(pid(conn))
        conn.execute(present, values)
        with sqlstate("LF004"):
            conn.execute(sqlalchemy.text(STEAL))
        with pytest.raises(pyfence.BadArgument):
            pyfence.present(conn, claim)
        assert pyfence.fenced_update(conn, "public.report", {"id": 1}, {"body": "new"}, claim) == 1
        with sqlstate("LF004"):
            conn.execute(sqlalchemy.text(STEAL))
    with engine.connect() as conn:
        pids.add(pid(conn))
        if level is None:
            pyfence.present(conn, claim)
            assert conn.execute(sqlalchemy.text(UPDATE)).rowcount == 1
            conn.commit()
        with sqlstate("LF004"):
            conn.execute(sqlalchemy.text(STEAL))
    engine.dispose()
    assert len(pids) == 1, "one connection did it all"
    assert db.execute("select body from public.report where id = 1") == [("new",)]


def test_a_script_of_single_statements_is_refused(db: Database, lease: Lease) -> None:
    """As psql runs a file with AUTOCOMMIT on; in one batch they are one transaction, and pass."""
    conn = db.connect("app", autocommit=True)
    conn.execute(PRESENT, lease.parameters)
    with sqlstate("LF004"):
        conn.execute(UPDATE)
    text = f"select fence.present('{lease.resource}', {lease.token}, '{lease.secret}'); {UPDATE}"
    conn.pgconn.exec_(text.encode())
    assert db.execute("select body from public.report where id = 1") == [("new",)]
    with sqlstate("LF004"):
        conn.execute(STEAL)


def test_discarding_everything_ends_nothing_early_and_leaves_nothing(db: Database, lease: Lease) -> None:
    conn = db.connect("app", autocommit=True)
    conn.execute("begin")
    conn.execute(PRESENT, lease.parameters)
    with sqlstate("25001"):
        conn.execute("discard all")
    conn.execute("rollback")
    conn.execute("discard all")
    conn.execute("begin")
    conn.execute(PRESENT, lease.parameters)
    conn.execute("reset all")
    with sqlstate("LF004"):
        conn.execute(UPDATE)
