"""session_replication_role = replica switches ordinary triggers off, and must not switch off these."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Scope, acquire, contents, present
from harness import Connection, Database, sqlstate

WRITES = {
    "insert": "insert into public.t (id, tenant, region) values (4, 'a', 'eu')",
    "update": "update public.t set body = 'new' where id = 1",
    "delete": "delete from public.t where id = 1",
    "truncate": "truncate public.t",
}


def replica_session(db: Database, who: str, isolation: psycopg.IsolationLevel) -> Connection:
    if who == "a role with the right to set it":
        if db.cluster.version < 15:
            pytest.skip("GRANT SET came with PostgreSQL 15")
        db.execute("grant set on parameter session_replication_role to app", user="postgres")
    user = "postgres" if who == "superuser" else "app"
    return db.connect(user, isolation=isolation, options="-c session_replication_role=replica")


@pytest.mark.parametrize("who", ["superuser", "a role with the right to set it"])
def test_a_replica_session_is_refused_too(
    db: Database, t: str, scope: Scope, who: str, isolation: psycopg.IsolationLevel
) -> None:
    connection = replica_session(db, who, isolation)
    before = contents(db)
    for statement in WRITES.values():
        with sqlstate("LF004"):
            connection.execute(statement)
        connection.rollback()
    with sqlstate("LF004"), connection.cursor() as cursor, cursor.copy("copy public.t (id) from stdin") as copy:
        copy.write_row((9,))
    connection.rollback()
    other = acquire(db, scope.other)
    for statement in (WRITES["insert"], WRITES["update"], WRITES["delete"]):
        present(connection, other)
        with sqlstate("LF005"):
            connection.execute(statement)
        connection.rollback()
    assert contents(db) == before
    present(connection, *[acquire(db, resource) for resource in scope.mine])
    assert connection.execute(WRITES["update"]).rowcount == 1


def test_a_move_is_seen_in_a_replica_session(db: Database) -> None:
    db.execute("create table public.c (id int primary key, tenant text)")
    db.execute("insert into public.c values (1, 'a')")
    db.execute("select fence.protect('public.c', 'tenant:{tenant}')")
    connection = db.connect("postgres", options="-c session_replication_role=replica")
    present(connection, acquire(db, "tenant:b"))
    with sqlstate("LF005"):
        connection.execute("update public.c set tenant = 'b'")


def test_every_trigger_fires_always(db: Database, t: str) -> None:
    states = db.execute(
        "select tgname, tgenabled::text from pg_trigger where not tgisinternal and tgname like '0\\_fence%%'"
    )
    states = [row for row in states if row]
    assert states
    assert {state for _, state in states} == {"A"}
    db.execute("alter table public.t disable trigger user")
    db.execute("alter table public.t enable trigger user")
    ((armed,),) = db.execute("select armed from fence.protected_tables")
    assert armed is False, "what a data loader leaves behind is not armed, and the view says so"
    db.execute("select fence.set_mode('public.t', 'enforce')")
    assert db.execute("select armed from fence.protected_tables") == [(True,)]
