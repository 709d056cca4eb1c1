"""Crashes, snapshots and backups: what was granted stays granted, and is never granted again."""

from __future__ import annotations

import os
import signal
import time

import psycopg
import pytest
from ha.nodes import Node, Stage, Tokens
from harness import sqlstate, wait_until


@pytest.mark.parametrize("commit", ["on", "off"])
def test_killing_the_server_loses_no_granted_token(stage: Stage, commit: str) -> None:
    """With asynchronous commits everything else of the last moments is lost, which the test shows first."""
    primary = stage.primary(wal_writer_delay="10s")
    primary.execute(f"alter role app set synchronous_commit = {commit}", user="postgres")
    tokens = Tokens(before=primary.tokens())
    holder = primary.supersede()
    primary.write(holder)
    with primary.connect("app") as connection:
        tail = primary.supersede("report:2")
        (body,) = connection.execute("select body from public.report").fetchone()  # type: ignore[misc]
        connection.execute("begin")
        connection.execute("select fence.present(%s, %s, %s)", holder.parameters)
        connection.execute("update public.report set body = 'last'")
        connection.execute("commit")
        primary.kill()
    primary.start()
    ((after,),) = primary.execute("select body from public.report")
    assert after == ("last" if commit == "on" else body)
    rows = primary.execute("select resource, token from fence.leases order by 1", user="monitor")
    assert rows == [("report:1", holder.token), ("report:2", tail.token)]
    primary.write(holder)  # the lease has outlived the crash
    tokens.before.append(holder.token)
    tokens.new = primary.tokens()
    tokens.judge()
    ((restarts,),) = primary.execute("select count(*) from fence.history where event = 'restart'")
    assert restarts == 2, "the first start, and the one after the crash"


def test_killing_one_backend_in_the_middle_of_a_grant(stage: Stage, primary: Node) -> None:
    """All backends die with it; what it had not committed is nobody's."""
    tokens = Tokens(before=primary.tokens())
    primary.execute("select fence.revoke('report:1', 'test')")
    doomed, witness = primary.connect("app", autocommit=False), primary.connect("app")
    (uncommitted, secret) = doomed.execute("select token, secret from fence.acquire('report:1')").fetchone()  # type: ignore[misc]
    os.kill(doomed.info.backend_pid, signal.SIGKILL)
    with pytest.raises(psycopg.OperationalError):
        witness.execute("select pg_sleep(60)")  # until the server has noticed

    def back() -> bool:
        try:
            return bool(primary.execute("select 1"))
        except psycopg.OperationalError:
            return False

    wait_until(back, "the server has recovered", deadline=60)
    with pytest.raises(psycopg.DatabaseError):
        primary.execute("select fence.renew('report:1', %s, %s)", (uncommitted, secret), user="app")
    tokens.new = primary.tokens()
    tokens.judge()


@pytest.mark.parametrize("how", ["running", pytest.param("stopped", marks=pytest.mark.ha)])
def test_a_volume_snapshot_leaves_no_trace_and_lands_above_all_the_same(stage: Stage, primary: Node, how: str) -> None:
    tokens = Tokens(before=primary.tokens())
    holder = primary.supersede()
    tokens.before.append(holder.token)
    if how == "stopped":
        primary.stop()
    snapshot = primary.copy("snapshot")
    if how == "stopped":
        primary.start()
    tokens.old = primary.tokens()
    primary.stop()
    snapshot.start()
    snapshot.write(holder)  # nothing tells that it was superseded: what on_restart = confirm is for
    tokens.new = snapshot.tokens()
    tokens.judge()


@pytest.mark.ha
@pytest.mark.parametrize("how", ["snapshot", "backup"])
def test_the_strict_setting_refuses_what_leaves_no_trace(stage: Stage, primary: Node, how: str) -> None:
    holder = primary.acquire()
    primary.execute("select fence.set_option('on_restart', 'confirm', 'test')")
    copy = primary.copy("copy") if how == "snapshot" else primary.base_backup("copy")
    old = primary.tokens()
    primary.stop()
    copy.start()
    copy.refuses(holder, "LF009")
    with sqlstate("LF009"):
        copy.acquire("report:2")
    copy.execute("select fence.confirm_lineage()")
    copy.refuses(holder, "LF001")
    Tokens(before=[holder.token], old=old, new=copy.tokens()).judge()


@pytest.mark.ha
def test_a_base_backup_started_without_a_signal_file(stage: Stage, primary: Node) -> None:
    tokens = Tokens(before=primary.tokens())
    backup = primary.base_backup("backup")
    tokens.old = primary.tokens()
    primary.stop()
    backup.start()
    assert backup.execute("select timeline_id from pg_control_checkpoint()", user="postgres") == [(1,)]
    tokens.new = backup.tokens()
    tokens.judge()


@pytest.mark.ha
def test_point_in_time_recovery_twice_from_one_backup(stage: Stage) -> None:
    archive = stage.workspace.path / "archive"
    archive.mkdir()
    stage.own(archive)
    primary = stage.primary(archive_mode=True, archive_command=f"cp %p {archive}/%f")
    before = primary.tokens()
    primary.execute("checkpoint", user="postgres")
    first, second = primary.base_backup("first"), primary.base_backup("second")
    kept = primary.supersede()
    ((moment,),) = primary.execute("select clock_timestamp()::text")
    time.sleep(0.01)
    lost = primary.tokens()
    ((segment,),) = primary.execute("select pg_walfile_name(pg_current_wal_lsn())", user="postgres")
    primary.execute("select pg_switch_wal()", user="postgres")
    wait_until((archive / segment).exists, "the segment is archived", deadline=30)
    every = [*before, kept.token, *lost]
    for node in (first, second):
        (node.data / "recovery.signal").touch()
        stage.own(node.data / "recovery.signal")
        node.settings |= {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_time": moment,
            "recovery_target_action": "promote",
            "archive_mode": False,  # so that the second knows nothing of the first: both become timeline 2
        }
        node.start()
        wait_until(
            lambda node=node: node.execute("select pg_is_in_recovery()") == [(False,)], "recovered", state=node.log
        )
        assert node.execute("select token from fence.leases", user="monitor") == [(kept.token,)]
        node.refuses(kept, "LF001")
        new = node.tokens()
        every += primary.tokens() if node is first else []
        Tokens(before=sorted(every), new=new).judge()
        every += new
        node.stop()
