"""`fence.evict` ends those who stand in the way of a dead claim, and nobody else."""

from __future__ import annotations

import psycopg
import pytest
from guards.scene import Lease, acquire, ask, check_refusal, expire, forge, present, renew, revoke, supersede
from harness import SUPERUSER, Connection, Database, edit_authority, sqlstate, wait_until
from takeover.frozen import frozen, is_there


def evict(db: Database, resource: str = "report:1", user: str = "app_owner") -> int:
    return int(db.execute("select fence.evict(%s)", (resource,), user=user)[0][0])


def admin_and_notices(db: Database) -> tuple[Connection, list[tuple[str | None, str | None]]]:
    """An administrator, and what the server tells it beside the answers: message and hint."""
    notices: list[tuple[str | None, str | None]] = []
    admin = db.connect("app_owner", autocommit=True)
    admin.add_notice_handler(lambda diag: notices.append((diag.message_primary, diag.message_hint)))
    return admin, notices


@pytest.mark.parametrize("how", ["idle", "copy", "unread"])
def test_a_frozen_writer_of_a_revoked_lease_is_ended(db: Database, report: str, may_signal: None, how: str) -> None:
    lease = acquire(db, "report:1")
    with frozen(db, lease, how) as pid:
        revoke(db, "report:1")
        assert ask(db, "report:1").reason == "draining"
        assert evict(db) == 1
        assert not is_there(db, pid)
        assert ask(db, "report:1").granted
    ((event, resource, token, role, detail),) = db.execute(
        "select event, resource, token, role, detail from fence.history where event = 'evicted'"
    )
    assert (event, resource, token, role) == ("evicted", "report:1", lease.token, "app_owner")
    assert detail == {"backends": [pid]}


@pytest.mark.parametrize("how", ["acquire", "renew"])
def test_a_client_frozen_before_its_commit_is_ended_by_the_server(db: Database, report: str, how: str) -> None:
    """By the idle timeout that the call has set for its transaction: its ttl. Nobody has to evict it."""
    lease = acquire(db, "report:1", "1 h")
    with frozen(db, lease, how) as pid:
        wait_until(lambda: not is_there(db, pid), "its transaction has idled longer than the ttl")
        for resource in ("report:1", "report:2"):
            assert ask(db, resource).reason == ("held" if resource == "report:1" else None)


def test_everybody_who_wrote_under_the_dead_claim_is_ended_and_nobody_else(
    db: Database, report: str, may_signal: None
) -> None:
    dead, other = acquire(db, "report:1"), acquire(db, "report:2")
    writers = [db.connect("app", isolation=level) for level in psycopg.IsolationLevel]
    for writer in writers:
        present(writer, dead)
    bystander, stranger = db.connect("app"), db.connect("outsider")
    present(bystander, other)
    stranger.execute("select 1")
    revoke(db, "report:1")
    assert evict(db) == len(writers)
    for writer in writers:
        with pytest.raises(psycopg.OperationalError):
            writer.execute("select 1")
    bystander.execute("update public.report set body = 'new' where id = 2")
    bystander.commit()
    stranger.commit()
    assert evict(db) == 0


def test_a_lease_closed_by_whoever_asked_after_its_expiry_is_dead(db: Database, report: str, may_signal: None) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    expire(db, "report:1")
    assert evict(db) == 0, "nobody has asked for it"
    assert ask(db, "report:1").reason == "draining"
    assert evict(db) == 1
    assert ask(db, "report:1").granted


def test_the_holder_of_a_live_lease_is_never_ended(db: Database, report: str, may_signal: None) -> None:
    writer = db.connect("app")
    admin, notices = admin_and_notices(db)
    lease = acquire(db, "report:1")
    present(writer, lease)
    assert admin.execute("select fence.evict('report:1')").fetchall() == [(0,)]
    ((message, hint),) = notices
    assert "not over" in str(message)
    assert "fence.revoke('report:1'" in str(hint)
    writer.rollback()
    newer = supersede(db, lease)
    present(writer, newer)
    assert evict(db) == 0
    renew(db, newer)
    writer.execute("update public.report set body = 'new' where id = 1")
    writer.commit()


def test_the_next_holder_is_not_taken_for_the_dead_one(db: Database, report: str, may_signal: None) -> None:
    """Its grant is not committed: the lease looks dead to everybody else."""
    revoke_me = acquire(db, "report:1")
    revoke(db, "report:1")
    entering, acquiring = db.connect("app"), db.connect("app")
    entering.execute("select fence.enter('report:1')")
    assert evict(db) == 0
    entering.execute("update public.report set body = 'entered' where id = 1")
    entering.commit()
    assert ask(acquiring, "report:1").token > revoke_me.token
    assert evict(db) == 0
    acquiring.commit()


def test_a_forged_label_ends_nobody(db: Database, report: str, may_signal: None) -> None:
    """Any role may take any advisory lock, also the very one: without a lock on leases it says nothing."""
    lease = acquire(db, "report:1")
    revoke(db, "report:1")
    ((label,),) = db.execute("select fence._label('report:1', %s)", (lease.token,), user="fence_owner")
    forger, session = db.connect("outsider"), db.connect("outsider", autocommit=True)
    forger.execute("select pg_advisory_xact_lock_shared(%s)", (label,))
    session.execute("select pg_advisory_lock_shared(%s)", (label,))
    assert evict(db) == 0
    forger.execute("select 1")
    session.execute("select 1")


def test_who_was_refused_is_not_in_the_way(db: Database, report: str, may_signal: None) -> None:
    lease = acquire(db, "report:1")
    revoke(db, "report:1")
    late = db.connect("app")
    late.execute("savepoint a")
    forge(late, lease)
    with sqlstate("LF001"):
        late.execute("update public.report set body = 'late' where id = 1")
    late.execute("rollback to savepoint a")
    assert evict(db) == 0
    late.execute("select 1")


def test_without_the_grant_nobody_is_ended_and_the_error_names_it(db: Database, report: str) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    revoke(db, "report:1")
    with sqlstate("42501") as refused:
        evict(db)
    check_refusal(refused.diag)
    assert refused.diag.message_hint == "grant pg_signal_backend to fence_owner;"
    writer.execute("select 1")
    db.execute(refused.diag.message_hint, user=SUPERUSER)
    try:
        assert evict(db) == 1
    finally:
        db.execute("revoke pg_signal_backend from fence_owner", user=SUPERUSER)


def test_a_superusers_session_is_for_superusers_to_end(db: Database, report: str, may_signal: None) -> None:
    lease = acquire(db, "report:1")
    writers = [db.connect(SUPERUSER), db.connect("app")]
    for writer in writers:
        present(writer, lease)
    revoke(db, "report:1")
    with sqlstate("42501") as refused:
        evict(db)
    for writer in writers:
        writer.execute("select 1")
    db.execute(refused.diag.message_hint.split(": ")[1], user=SUPERUSER)
    wait_until(lambda: not is_there(db, writers[0].info.backend_pid), "the superuser's session has ended")
    assert evict(db) == 1


def test_a_prepared_transaction_is_named(db: Database, report: str, may_signal: None) -> None:
    lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    writer.execute("prepare transaction 'stuck'")
    writer.commit()
    revoke(db, "report:1")
    admin, notices = admin_and_notices(db)
    assert admin.execute("select fence.evict('report:1')").fetchall() == [(0,)]
    ((_, hint),) = notices
    assert hint == "rollback prepared 'stuck';"
    db.execute(hint, user="app")
    assert ask(db, "report:1").granted


def test_only_administrators_evict(db: Database, report: str) -> None:
    for user in ("app", "monitor", "outsider"):
        with sqlstate("42501"):
            evict(db, user=user)


@pytest.mark.parametrize("name", [None, "", "report:{id}"])
def test_a_bad_name_is_refused(db: Database, report: str, name: str | None) -> None:
    with sqlstate("LF010") as refused:
        db.execute("select fence.evict(%s)", (name,))
    check_refusal(refused.diag)
    assert evict(db, "never:asked") == 0


def test_a_lease_of_an_older_lineage_is_dead(db: Database, report: str, may_signal: None) -> None:
    lease: Lease = acquire(db, "report:1")
    writer = db.connect("app")
    present(writer, lease)
    db.execute("select fence.confirm_lineage()")
    assert evict(db) == 1


def test_nobody_is_evicted_before_it_is_known_whose_the_database_is(
    db: Database, report: str, may_signal: None
) -> None:
    writer = db.connect("app")
    present(writer, acquire(db, "report:1"))
    edit_authority(db.url("fence_owner"), "timeline = '0000002A'")
    admin, notices = admin_and_notices(db)
    assert admin.execute("select fence.evict('report:1')").fetchall() == [(0,)]
    assert len(notices) == 1
    writer.rollback()


def test_whoever_evicts_is_not_in_its_own_way(db: Database, report: str, may_signal: None) -> None:
    admin, notices = admin_and_notices(db)
    with admin.transaction():
        present(admin, acquire(db, "report:1"))
        admin.execute("select fence.revoke('report:1', 'test')")
        assert admin.execute("select fence.evict('report:1')").fetchall() == [(0,)]
    assert notices == []


def test_only_who_was_ended_is_in_the_history_and_nobody_is_named_without_need(
    db: Database, report: str, may_signal: None
) -> None:
    writer = db.connect("app")
    present(writer, acquire(db, "report:1"))
    revoke(db, "report:1")
    admin, notices = admin_and_notices(db)
    events = "select detail -> 'backends' from fence.history where event = 'evicted'"
    for ended in (1, 0):
        assert admin.execute("select fence.evict('report:1')").fetchall() == [(ended,)]
        assert admin.execute(events).fetchall() == [([writer.info.backend_pid],)]
    assert notices == []
