"""A session in replica role fires no ordinary trigger: tokens keep to their rules all the same."""

from __future__ import annotations

from guards.scene import acquire
from harness import SUPERUSER, Database, sqlstate


def test_a_token_goes_down_in_no_session(db: Database) -> None:
    lease = acquire(db, "report:1")
    connection = db.connect(SUPERUSER)
    connection.execute("set session_replication_role = replica")
    connection.execute("set role fence_owner")
    connection.execute("savepoint a")
    for change in ("token = token - 1", "token = 0", "resource = 'report:2'"):
        with sqlstate("42501"):
            connection.execute(f"update fence._lease set {change}")
        connection.execute("rollback to savepoint a")
    with sqlstate("42501"):
        connection.execute("delete from fence._lease")
    connection.rollback()
    assert db.execute("select token from fence.leases", user="monitor") == [(lease.token,)]
