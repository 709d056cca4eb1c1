"""The tests' own tools: a race is ordered by the server, a stale byte by the proxy."""

from __future__ import annotations

import psycopg
import pytest
from harness import Database, level, sqlstate
from proxy import Proxy


@pytest.fixture
def db(empty_db: Database) -> Database:
    """These tests need no pyfence in their database."""
    return empty_db


@pytest.fixture
def counter(db: Database) -> Database:
    db.execute("create table public.counter (id int primary key, value int not null)")
    db.execute("insert into public.counter values (1, 0)")
    return db


def test_every_role_is_there_and_none_is_a_superuser(db: Database) -> None:
    rows = db.execute("select rolname from pg_roles where rolcanlogin and not rolsuper order by 1")
    assert [name for (name,) in rows] == ["app", "app_owner", "fence_owner", "monitor", "outsider"]


def test_databases_do_not_see_each_other(db: Database) -> None:
    other = Database(db.cluster, empty=True)
    db.execute("create table public.mine ()")
    assert other.execute("select to_regclass('public.mine')") == [(None,)]
    other.close()


def test_application_roles_write_the_owners_tables(counter: Database) -> None:
    for user in ("app", "outsider"):
        counter.execute("update public.counter set value = value + 1", user=user)
    with sqlstate("42501"):
        counter.execute("select from public.counter", user="monitor")
    assert counter.execute("select value from public.counter") == [(2,)]


def test_a_blocked_statement_is_seen_waiting(counter: Database, isolation: psycopg.IsolationLevel) -> None:
    first, second = counter.connect(), counter.connect("outsider", isolation=isolation)
    first.execute("update public.counter set value = 1")
    assert second.execute("show transaction_isolation").fetchall() == [(level(isolation),)]
    waiting = counter.start_blocked(second, "update public.counter set value = 2", by=first)
    first.commit()
    if isolation is psycopg.IsolationLevel.READ_COMMITTED:
        waiting.result(10)
    else:
        with sqlstate("40001") as refused:
            waiting.result(10)
        assert "concurrent update" in refused.diag.message_primary


def test_a_statement_that_does_not_wait_fails_the_test(counter: Database) -> None:
    with pytest.raises(pytest.fail.Exception, match="did not wait"):
        counter.start_blocked(counter.connect(), "select 1")


def test_a_thread_left_waiting_ends_with_the_test(counter: Database) -> None:
    first, second = counter.connect(), counter.connect()
    first.execute("update public.counter set value = 1")
    counter.start_blocked(second, "update public.counter set value = 2")  # the fixture ends it


def test_a_prepared_transaction_does_not_keep_a_database_alive(db: Database) -> None:
    connection = db.connect("fence_owner")
    connection.tpc_begin(connection.xid(1, "left", "over"))
    connection.execute("select pg_advisory_xact_lock(1)")
    connection.tpc_prepare()  # the fixture rolls it back


def test_rows_without_columns_are_rows(db: Database) -> None:
    """`assert db.execute("select from ...") == []` must be able to fail."""
    assert len(db.execute("select from generate_series(1, 2)")) == 2
    assert db.execute("create table public.mine ()") == []


def test_sqlstate_wants_the_error_it_names(db: Database) -> None:
    with pytest.raises(pytest.fail.Exception, match="no error"), sqlstate("42P01"):
        db.execute("select 1")
    with pytest.raises(psycopg.errors.UndefinedTable), sqlstate("42601"):
        db.execute("select from public.nowhere")


def test_proxy_makes_a_statement_late(counter: Database, proxy: Proxy) -> None:
    late = psycopg.connect(proxy.url(counter.url("app")), autocommit=True)
    proxy.requests.hold()
    waiting = counter.in_thread(late.execute, "update public.counter set value = 1")
    proxy.requests.wait_for_bytes()
    counter.execute("update public.counter set value = 2")
    proxy.requests.release()
    waiting.result(10)
    assert counter.execute("select value from public.counter") == [(1,)]
    late.close()


def test_proxy_loses_an_answer_but_not_the_commit(counter: Database, proxy: Proxy) -> None:
    client = psycopg.connect(proxy.url(counter.url("app")), autocommit=True)
    proxy.replies.hold()
    waiting = counter.in_thread(client.execute, "update public.counter set value = 7")
    proxy.replies.wait_for_bytes()
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        waiting.result(10)
    assert counter.execute("select value from public.counter") == [(7,)]


def test_proxy_counts_round_trips(db: Database, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(db.url("app")), autocommit=True) as connection:
        before = proxy.round_trips
        connection.execute("select %s::int", (1,))
        assert proxy.round_trips - before == 1
