"""The calls on leases wait for no writer and disturb none, and whoever proves nothing holds nothing up."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, expire, present, renew, revoke
from harness import Database, sqlstate, wait_until
from races.writer import body, write


def test_a_heartbeat_waits_for_none_of_the_holders_writes_and_spoils_none(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    writers = [db.connect("app", isolation=isolation) for _ in range(2)]
    for writer in writers:
        present(writer, lease)
    write(writers[0], "first")
    heart = db.connect("app", autocommit=True, options="-c statement_timeout=2s")
    for _ in range(5):
        renew(heart, lease)
        heart.execute(
            "select * from fence.renew_all(%s, %s, %s, '30 s')", ([lease.resource], [lease.token], [lease.secret])
        )
    write(writers[0], "second")
    writers[0].commit()
    assert writers[1].execute("update public.lenient set body = 'x' where id = 1").rowcount == 1
    writers[1].commit()
    present(writers[1], lease)
    renew(heart, lease)
    assert write(writers[1], "third") == 1
    writers[1].commit()
    assert body(db) == "third"


def test_release_and_revoke_wait_for_none_of_the_open_writes(
    db: Database, lease: Lease, isolation: psycopg.IsolationLevel
) -> None:
    a = db.connect("app", isolation=isolation)
    present(a, lease)
    write(a, "A")
    other = db.connect("app", autocommit=True, options="-c statement_timeout=2s")
    assert other.execute("select fence.release(%s, %s, %s)", lease.parameters).fetchall() == [(True,)]
    assert not revoke(db, "report:1")
    if isolation == psycopg.IsolationLevel.READ_COMMITTED:
        with sqlstate("LF001"), a.transaction():
            write(a, "again")
    else:
        write(a, "A")
    a.commit()
    assert body(db) == "A"
    assert ask(db, "report:1").granted


def test_who_cannot_prove_the_claim_locks_nothing(db: Database, lease: Lease) -> None:
    """Else an open transaction without the secret stops the holder's heartbeats, and then everybody."""
    thief = db.connect("app")
    wrong = (lease.resource, lease.token, "0" * 32)
    heart = db.connect("app", autocommit=True, options="-c statement_timeout=2s")
    older = (lease.resource, lease.token - 1, lease.secret)
    for parameters in (wrong, older):
        assert thief.execute("select fence.release(%s, %s, %s)", parameters).fetchall() == [(False,)]
        ((_, _, code),) = thief.execute(
            "select * from fence.renew_all(%s, %s, %s, '1 d')", tuple([value] for value in parameters)
        ).fetchall()
        assert code in ("LF001", "LF006")
    for call in ("present", "renew"):
        thief.execute("savepoint s")
        with sqlstate("LF006"):
            thief.execute(f"select fence.{call}(%s, %s, %s)", wrong)
        thief.execute("rollback to savepoint s")
    assert not ask(thief, "report:1").granted
    renew(heart, lease)
    expire(db, "report:1")
    assert ask(db, "report:1").granted


def test_a_frozen_client_is_ended_by_the_limit_it_was_given(db: Database, report: str) -> None:
    lease = acquire(db, "report:1", "1 s")
    frozen = db.connect("app")
    present(frozen, lease)
    pid = frozen.info.backend_pid

    def gone() -> bool:
        return not db.cluster.admin.execute("select from pg_stat_activity where pid = %s", (pid,)).fetchall()

    wait_until(gone, "the idle transaction was ended")
    wait_until(lambda: ask(db, "report:1").granted, "the lease is free")


#: What changes leases or the authority: who calls it, and how long its transaction may idle.
CHANGES = {
    "acquire('report:2', '1 s')": ("app", "1s"),
    "enter('report:2', '1 s')": ("app", "1s"),
    "renew(%s, %s, %s, '1 s')": ("app", "1s"),
    "renew(%s, %s, %s)": ("app", "30s"),
    "renew_all(array[%s], array[%s]::bigint[], array[%s], '1 s')": ("app", "1s"),
    "renew_all(array[%s], array[%s]::bigint[], array[%s], null)": ("app", "30s"),
    "release(%s, %s, %s)": ("app", "30s"),
    "revoke('report:1', 'test')": ("app_owner", "30s"),
    "raise_token_floor(3000000000000000, 'test', true)": ("app_owner", "30s"),
    "confirm_lineage()": ("app_owner", "30s"),
}


@pytest.mark.parametrize("call", [*CHANGES, "_acquire_in_turn('report:1', '1 h', 'x', 0, null)"])
def test_the_calls_on_leases_bound_their_transaction_too(db: Database, lease: Lease, call: str) -> None:
    user, limit = CHANGES.get(call, ("app", "30s"))
    connection = db.connect(user)
    connection.execute(f"select fence.{call}", lease.parameters if "%s" in call else None)
    ((found,),) = connection.execute("select current_setting('idle_in_transaction_session_timeout')").fetchall()
    assert found == limit


@pytest.mark.parametrize("setting", ["off", "local", "remote_write", "on", "remote_apply"])
def test_a_token_is_on_disk_before_it_is_handed_out(db: Database, lease: Lease, setting: str) -> None:
    for call, (user, _) in CHANGES.items():
        connection = db.connect(user, options=f"-c synchronous_commit={setting}")
        connection.execute(f"select fence.{call}", lease.parameters if "%s" in call else None)
        ((during,),) = connection.execute("show synchronous_commit").fetchall()
        assert during == ("remote_apply" if setting == "remote_apply" else "on"), call
        connection.rollback()
        assert connection.execute("show synchronous_commit").fetchall() == [(setting,)]
        connection.close()
