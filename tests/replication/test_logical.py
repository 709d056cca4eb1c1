"""Logical replication: the publisher's writers hold leases, the subscriber's workers need none, everybody else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guards.scene import acquire, present, protect
from harness import Database, sqlstate, wait_until
from replication.pair import drop_slots, rows, same, subscription
from trees import forest
from trees.forest import TEMPLATE, armed, attempt, guard_triggers

TABLE = "create table public.report (id int primary key, tenant text, body text default 'old')"
KEYS = "alter table public.t add primary key (id, day, tenant)"


@pytest.fixture
def other(db: Database) -> Iterator[Database]:
    database = Database(db.cluster)
    yield database
    database.close()


@pytest.fixture(params=["row", "table", "counted"])
def guard(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    return {
        "row": (TEMPLATE, {}),
        "table": ("nightly", {}),
        "counted": (TEMPLATE, {"p_writes": "once"}),
    }[request.param]


def test_a_guarded_publisher_and_an_unguarded_subscriber(db: Database, other: Database) -> None:
    for database in (db, other):
        database.execute(TABLE)
    protect(db, "public.report", TEMPLATE)
    lease = acquire(db, "tenant:a")
    connection = db.connect("app")
    with subscription(db, other, "for table public.report"):
        with sqlstate("LF004"):
            connection.execute("insert into public.report values (1, 'a')")
        connection.rollback()
        present(connection, lease)
        connection.execute("insert into public.report select n, 'a' from generate_series(1, 20) n")
        connection.execute("update public.report set body = 'new' where id > 10")
        connection.execute("delete from public.report where id < 5")
        connection.commit()
        same(db, other, "public.report")
        assert len(rows(other, "public.report")) == 16
        other.execute("insert into public.report values (100, 'a')")  # nothing guards this side


def test_a_guarded_subscriber_keeps_applying(db: Database, other: Database, guard: tuple[str, dict[str, str]]) -> None:
    """INSERT, UPDATE, moves, DELETE, TRUNCATE and the initial copy pass; sessions do not, in replica role neither."""
    template, options = guard
    for database in (db, other):
        database.execute(TABLE)
    db.execute("insert into public.report select n, 'a' from generate_series(1, 5) n")
    protect(other, "public.report", template, **options)
    triggers = guard_triggers(other)
    with subscription(db, other, "for table public.report"):
        same(db, other, "public.report")  # the initial copy
        db.execute("insert into public.report select n, 'b' from generate_series(6, 9) n")
        db.execute("update public.report set body = 'new' where id in (1, 6)")
        db.execute("update public.report set tenant = 'c' where id in (2, 7)")
        db.execute("update public.report set id = 50 where id = 3")
        db.execute("delete from public.report where id in (4, 8)")
        same(db, other, "public.report")
        app, replica = other.connect("app"), other.connect("postgres", options="-c session_replication_role=replica")
        for connection in (app, replica):
            for statement in (
                "insert into public.report values (99, 'a')",
                "update public.report set body = 'x'",
                "delete from public.report",
                "truncate public.report",
            ):
                assert attempt(connection, statement) == "LF004"
        db.execute("truncate public.report")
        same(db, other, "public.report")
        assert rows(other, "public.report") == []
        db.execute("insert into public.report values (1, 'a')")
        same(db, other, "public.report")
        lease = acquire(other, "nightly" if template == "nightly" else "tenant:a")
        present(app, lease)
        assert app.execute("update public.report set body = 'local'").rowcount == 1
        app.rollback()
    assert guard_triggers(other) == triggers
    assert armed(other, "public.report")


@pytest.mark.parametrize("root", [False, True])
def test_a_guarded_tree_on_the_subscriber(db: Database, other: Database, root: bool) -> None:
    """Rows come to leaves by themselves or, with publish_via_partition_root, through the root; leaves old and new."""
    forest_without_guard(db)
    forest.plant(other)
    other.execute("alter table public.t disable trigger user")
    other.execute("delete from public.t")
    protect(other, "public.t", TEMPLATE)
    for database in (db, other):
        database.execute(KEYS)
        database.execute(
            "create table public.new partition of public.t for values from ('2030-01-01') to ('2031-01-01')"
        )
    assert not armed(other)
    via = f" with (publish_via_partition_root = {str(root).lower()})"
    with subscription(db, other, f"for table public.t{via}"):
        same(db, other, "public.t")
        db.execute("insert into public.t (id, tenant, day) values (30, 'a', '2030-05-05'), (31, 'b', '2026-01-05')")
        db.execute("update public.t set body = 'new'")
        db.execute("update public.t set day = '2026-02-20' where id in (1, 2, 30)")
        db.execute("update public.t set day = '2030-02-20', tenant = 'c' where id in (3, 4)")
        db.execute("delete from public.t where id in (5, 6)")
        same(db, other, "public.t")
        for part in ("t", "jan", "feb_b", "new"):
            assert attempt(other.connect("app"), f"update public.{part} set body = 'x'") == "LF004"
        db.execute("truncate public.t")
        same(db, other, "public.t")


def forest_without_guard(db: Database) -> None:
    forest.plant(db)
    db.execute("select fence.unprotect('public.t')")


def test_parallel_workers_apply_too(db: Database, other: Database) -> None:
    """Streamed transactions are applied by workers of their own from PostgreSQL 16 on."""
    if db.cluster.version < 16:
        pytest.skip("parallel apply came with PostgreSQL 16")
    for database in (db, other):
        database.execute(TABLE)
    protect(other, "public.report", TEMPLATE)
    db.execute("alter system set logical_decoding_work_mem = '64kB'", user="postgres")
    db.execute("select pg_reload_conf()", user="postgres")
    try:
        with subscription(db, other, "for table public.report", options=", streaming = parallel"):
            db.execute("insert into public.report values (0, 'a')")  # after it the worker knows that all is copied
            same(db, other, "public.report")
            connection = db.connect("app_owner")
            connection.execute(
                "insert into public.report select n, 'a', repeat('x', 500) from generate_series(1, 3000) n"
            )
            wait_for_parallel_worker(other)
            connection.execute("update public.report set body = 'new' where id % 2 = 0")
            connection.execute("delete from public.report where id % 3 = 0 and id > 0")
            connection.commit()
            same(db, other, "public.report")
            assert len(rows(other, "public.report")) == 2001
    finally:
        db.execute("alter system reset logical_decoding_work_mem", user="postgres")
        db.execute("select pg_reload_conf()", user="postgres")


def wait_for_parallel_worker(subscriber: Database) -> None:
    query = (
        "select pid from pg_stat_activity where datname = %s and backend_type = 'logical replication parallel worker'"
    )
    wait_until(
        lambda: bool(subscriber.execute(query, (subscriber.name,), user="postgres")), "a parallel worker applies"
    )


def test_all_tables_published_with_the_fence_among_them(db: Database, other: Database) -> None:
    """Leases on both sides stay what they are where the copy of the fence's own rows is left out; the rest arrives."""
    for database in (db, other):
        database.execute(TABLE)
        protect(database, "public.report", TEMPLATE)
    connection = db.connect("app")
    with subscription(db, other, "for all tables", options=", copy_data = false"):
        lease = acquire(db, "tenant:a")
        present(connection, lease)
        connection.execute("insert into public.report values (1, 'a')")
        connection.commit()
        db.execute("select fence.renew(%s, %s, %s)", lease.parameters, user="app")
        same(db, other, "public.report", "fence._lease")
        db.execute("select fence.revoke('tenant:a', 'test')")
        token = acquire(db, "tenant:a").token
        assert token > lease.token
        same(db, other, "fence._lease")
        assert attempt(other.connect("app"), "update public.report set body = 'x'") == "LF004"
        for statement in ("update fence._lease set token = token - 1", "delete from fence._lease"):
            with sqlstate("42501"):
                other.execute(statement, user="postgres")


def test_the_published_application_alone(db: Database, other: Database) -> None:
    """What the documentation recommends: the application's schema, and each side its own fence."""
    if db.cluster.version < 15:
        pytest.skip("FOR TABLES IN SCHEMA came with PostgreSQL 15")
    for database in (db, other):
        database.execute(TABLE)
        protect(database, "public.report", TEMPLATE)
    connection = db.connect("app")
    with subscription(db, other, "for tables in schema public"):
        present(connection, acquire(db, "tenant:a"))
        connection.execute("insert into public.report values (1, 'a')")
        connection.commit()
        same(db, other, "public.report")
        assert other.execute("select resource from fence.leases") == []
        assert acquire(other, "tenant:a").token > 0


def test_the_publishers_token_arrives_in_a_token_column(db: Database, other: Database) -> None:
    """The worker has no claim to stamp, and what it applies does not count as a write."""
    for database in (db, other):
        database.execute(TABLE)
        database.execute("alter table public.report add fence_token bigint")
        protect(database, "public.report", TEMPLATE, p_token_column="fence_token", p_writes="once")
    lease = acquire(db, "tenant:a")
    connection = db.connect("app")
    with subscription(db, other, "for table public.report"):
        present(connection, lease)
        connection.execute("insert into public.report values (1, 'a')")
        connection.commit()
        same(db, other, "public.report")
        assert other.execute("select fence_token from public.report") == [(lease.token,)]
        assert other.execute("select count(*) from fence._accepted", user="fence_owner") == [(0,)]
        local = acquire(other, "tenant:a")
        assert attempt(other.connect("app"), "update public.report set body = 'local'", local) == 1


def test_the_fences_own_rows_cannot_be_copied_over_those_of_another(db: Database, other: Database) -> None:
    """FOR ALL TABLES with an initial copy stops at the authority; the subscriber's stays what it is."""
    if db.cluster.version < 15:
        pytest.skip("disable_on_error came with PostgreSQL 15")
    before = rows(other, "fence._authority")
    db.execute("create publication p for all tables", user="postgres")
    db.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (db.name,), user="postgres")
    other.execute(
        f"create subscription s connection '{db.url('postgres')}' publication p "
        f"with (create_slot = false, slot_name = '{db.name}', disable_on_error = true)",
        user="postgres",
    )
    try:
        query = "select subenabled from pg_subscription where subname = 's'"
        wait_until(lambda: other.execute(query, user="postgres") == [(False,)], "the subscription stopped", deadline=60)
        assert rows(other, "fence._authority") == before
        assert acquire(other, "tenant:a").token > 0
    finally:
        other.execute("alter subscription s disable", user="postgres")
        other.execute("alter subscription s set (slot_name = none)", user="postgres")
        other.execute("drop subscription s", user="postgres")
        drop_slots(db)
