"""Who stands in the way of a takeover: told by locks, which nobody can forget to set or leave behind."""

from __future__ import annotations

from typing import Any

import psycopg
from guards.scene import acquire, present, renew, startup
from harness import SUPERUSER, Cluster, Connection, Database, sqlstate
from takeover.frozen import frozen

WHO = "select pid, resource, token, role::text, state from fence.in_flight order by resource"


def who(db: Database, user: str = SUPERUSER) -> list[tuple[Any, ...]]:
    return db.execute(WHO, user=user)


def pid_of(connection: Connection) -> int:
    return connection.info.backend_pid


def labels(db: Database) -> int:
    statement = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database "
    return int(db.execute(statement + "where datname = current_database())")[0][0])


def test_an_idle_writer_is_shown_with_its_claims(db: Database, report: str, isolation: psycopg.IsolationLevel) -> None:
    assert who(db) == []
    one, two = acquire(db, "report:1"), acquire(db, "report:2")
    writer = db.connect("app", isolation=isolation, application_name="nightly", host="127.0.0.1")
    present(writer, one, two)
    assert who(db) == [(pid_of(writer), x.resource, x.token, "app", "idle in transaction") for x in (one, two)]
    ((application, client, since, began, query),) = db.execute(
        "select distinct application, client, since >= began_at, began_at <= query_start, query_start <= now()"
        " from fence.in_flight",
        user=SUPERUSER,
    )
    assert (application, since, began, query) == ("nightly", True, True, True)
    assert client is not None
    writer.commit()
    assert who(db) == []
    assert labels(db) == 0


def test_a_monitor_sees_who_holds_what_without_further_rights(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    assert who(db, "monitor") == [(pid_of(writer), "report:1", lease.token, "app", None)]
    with sqlstate("42501"):
        who(db, "app")


def test_what_a_savepoint_takes_back_is_not_shown(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    writer.execute("savepoint a")
    present(writer, lease)
    writer.execute("rollback to savepoint a")
    assert who(db) == []


def test_a_claim_of_the_start_up_options_is_shown(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app", options=startup(lease))
    writer.execute("update public.report set body = 'new' where id = 1")
    assert who(db) == [(pid_of(writer), "report:1", lease.token, "app", "idle in transaction")]


def test_a_prepared_transaction_is_shown(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    writer.execute("prepare transaction 'stuck'")
    writer.commit()
    assert db.execute("select pid, gid, role::text, resource, token, state, since is null from fence.in_flight") == [
        (None, "stuck", "app", "report:1", lease.token, "prepared", False)
    ]


def test_changes_of_leases_are_shown_without_a_name(db: Database, report: str) -> None:
    """An acquire, a renewal or an enter that is not committed: nobody else can know what it is about."""
    lease = acquire(db, "report:1")
    renewing, entering = db.connect("app"), db.connect("app")
    renew(renewing, lease)
    entering.execute("select fence.enter('report:2')")
    assert sorted(who(db)) == sorted(
        (pid_of(x), None, None, "app", "idle in transaction") for x in (renewing, entering)
    )


def test_a_frozen_client_is_shown(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    with frozen(db, lease, "copy") as pid:
        assert db.execute("select pid, state, wait_event from fence.in_flight", user=SUPERUSER) == [
            (pid, "active", "ClientRead")
        ]


def test_advisory_locks_of_others_name_nothing(db: Database, report: str) -> None:
    """Neither those of somebody who holds no lease nor those of a holder that are about something else."""
    lease = acquire(db, "report:1")
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    forger, writer = db.connect("outsider"), db.connect("app")
    forger.execute("select pg_advisory_xact_lock_shared(%s)", (label,))
    assert who(db) == []
    present(writer, lease)
    writer.execute("select pg_advisory_xact_lock_shared(41), pg_advisory_xact_lock_shared(4, 1), pg_advisory_lock(42)")
    assert [row[:2] for row in who(db)] == [(pid_of(writer), "report:1")]


def test_other_databases_are_not_looked_at(db: Database, report: str, cluster: Cluster) -> None:
    """A copy has the same tables under the same numbers."""
    lease = acquire(db, "report:1")
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    copy = Database(cluster)
    try:
        writer = copy.connect("fence_owner")
        writer.execute("lock table fence._lease in row share mode")
        writer.execute("select pg_advisory_xact_lock_shared(%s)", (label,))
        assert who(db) == []
        assert len(who(copy)) == 1
    finally:
        copy.close()


def test_a_label_that_is_taken_keeps_nobody_waiting(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    forger, writer = db.connect("outsider"), db.connect("app")
    forger.execute("select pg_advisory_lock(%s)", (label,))
    writer.execute("set statement_timeout = '2 s'")
    present(writer, lease)
    assert writer.execute("update public.report set body = 'new' where id = 1").rowcount == 1
    assert [row[:2] for row in who(db)] == [(pid_of(writer), None)], "shown, and not by name"


def test_many_claims_do_not_fill_the_lock_table(db: Database, report: str) -> None:
    names = [f"many:{number}" for number in range(400)]
    rows = db.execute("select a.token, a.secret from unnest(%s::text[]) n, fence.acquire(n) a", (names,), user="app")
    arrays = [names, [token for token, _ in rows], [secret for _, secret in rows]]
    writers = [db.connect("app") for _ in range(2)]
    for writer in writers:
        writer.execute("select fence.present_all(%s, %s, %s)", arrays)
    assert 2 * 10 <= labels(db) <= 2 * 50
    shown = db.execute("select pid, count(resource) from fence.in_flight group by pid order by pid", user=SUPERUSER)
    assert [pid for pid, _ in shown] == sorted(map(pid_of, writers))
