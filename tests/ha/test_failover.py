"""Standbys promoted without the tail of the history, old primaries that go on, and the way back."""

from __future__ import annotations

import signal

import psycopg
import pytest
from ha.nodes import Node, Stage, Tokens
from harness import sqlstate, wait_until


def cut(primary: Node, *standbys: Node) -> None:
    """From here on the standbys hear nothing: what the primary commits is the tail that they will have lost."""
    for standby in standbys:
        standby.catch_up(primary)
    for standby in standbys:
        standby.stop()
        standby.settings["primary_conninfo"] = ""
        standby.start()


def test_a_standby_promoted_without_the_tail(stage: Stage, primary: Node) -> None:
    """The holder was superseded only in the lost tail, and writes before anybody has acquired on the new primary."""
    tokens = Tokens()
    standby = primary.standby("standby")
    superseded = primary.supersede()
    tokens.before = [superseded.token]
    cut(primary, standby)
    tokens.old = primary.tokens()
    standby.promote()
    known = standby.execute("select token from fence._lease", user="fence_owner")
    assert known == [(superseded.token,)], "nothing here tells that it was superseded"
    standby.refuses(superseded, "LF001")
    assert standby.authority() == "pending"
    tokens.new = standby.tokens()
    tokens.old += primary.tokens()  # split brain: the old primary has noticed nothing
    tokens.new += standby.tokens()
    tokens.judge()
    standby.refuses(superseded, "LF001")
    standby.write(standby.supersede())
    assert standby.authority() == "issuing"
    ((events,),) = standby.execute("select count(*) from fence.history where event = 'lineage'")
    assert events == 1


def test_a_standby_says_that_it_is_one(stage: Stage, primary: Node) -> None:
    lease = primary.acquire()
    standby = primary.standby("standby")
    assert standby.authority() == "standby"
    assert standby.execute("select state from fence.leases", user="monitor") == [("held",)]
    assert standby.execute("select code from fence.audit() where object = 'fence._authority'", user="monitor") == []
    for call in ("fence.acquire('report:2')", "fence.renew(%s, %s, %s)", "fence.present(%s, %s, %s)"):
        with sqlstate("25006"):
            standby.execute(f"select {call}", lease.parameters if "%" in call else None, user="app")


@pytest.mark.ha
def test_under_confirm_a_promoted_standby_waits_for_an_administrator(stage: Stage, primary: Node) -> None:
    primary.execute("select fence.set_option('lineage_policy', 'confirm', 'test')")
    tokens = Tokens(before=primary.tokens())
    holder = primary.supersede()
    standby = primary.standby("standby")
    cut(primary, standby)
    tokens.old = primary.tokens()
    standby.promote()
    standby.refuses(holder, "LF009")
    with sqlstate("LF009"):
        standby.acquire("report:2")
    standby.execute("select fence.confirm_lineage()")
    tokens.new = standby.tokens()
    tokens.judge()


@pytest.mark.ha
def test_two_standbys_of_one_ancestor_promoted_one_after_the_other(stage: Stage, primary: Node) -> None:
    """Both are on timeline 2 and know nothing of each other."""
    first, second = primary.standby("first"), primary.standby("second")
    before = primary.tokens()
    cut(primary, first, second)
    lost = primary.tokens()
    primary.stop()
    first.promote()
    of_first = first.tokens()
    on_first = first.supersede()
    first.stop(signal.SIGQUIT)
    second.promote()
    of_second = second.tokens()
    Tokens(before=[*before, *lost], old=[*of_first, on_first.token], new=of_second).judge()
    second.refuses(on_first, "LF001")


@pytest.mark.ha
def test_a_synchronous_standby_has_every_token_and_still_begins_a_lineage(stage: Stage, primary: Node) -> None:
    primary.execute("select fence.set_option('need_sync', 'on', 'test')")
    with sqlstate("LF009"):
        primary.acquire()
    standby = primary.standby("standby")
    primary.execute("alter system set synchronous_standby_names = 'standby'", user="postgres")
    primary.execute("select pg_reload_conf()", user="postgres")
    tokens = Tokens()
    with primary.connect("app") as connection:  # a session of before the reload may take a moment to see it
        while not connection.execute("show synchronous_standby_names").fetchone()[0]:  # type: ignore[index]
            pass
    tokens.before = primary.tokens()
    holder = primary.supersede()
    primary.kill()
    standby.settings["synchronous_standby_names"] = ""
    standby.promote()
    ((newest,),) = standby.execute("select token from fence.leases", user="monitor")
    assert newest == holder.token, "granted means replicated"
    with sqlstate("LF009"):
        standby.acquire("report:2")
    standby.refuses(holder, "LF001")
    standby.execute("select fence.set_option('need_sync', 'off', 'no standby is left')")
    tokens.new = standby.tokens()
    tokens.judge()


@pytest.mark.ha
def test_rewinding_the_old_primary_and_failing_back(stage: Stage, primary: Node) -> None:
    standby = primary.standby("standby")
    before = primary.tokens()
    cut(primary, standby)
    lost = primary.tokens()
    standby.promote()
    after = standby.tokens()
    Tokens(before=before, old=lost, new=after).judge()
    holder = standby.supersede()
    primary.stop()
    source = f"host=127.0.0.1 port={standby.port} user=postgres dbname=postgres"
    standby.execute("checkpoint", user="postgres")
    stage.run("pg_rewind", "-D", str(primary.data), "--source-server", source, "--no-sync")
    (primary.data / "postgresql.auto.conf").write_text("")
    primary.follow(standby)
    primary.start()
    primary.catch_up(standby)
    assert primary.authority() == "standby"
    standby.stop()
    primary.promote()
    primary.refuses(holder, "LF001")
    Tokens(before=[*before, *lost, *after, holder.token], new=primary.tokens()).judge()


@pytest.mark.ha
def test_a_switchover_by_logical_replication(stage: Stage, primary: Node) -> None:
    """The subscriber has a fence of its own, and has never seen a token: the runbook's one command matters."""
    subscriber = stage.primary("subscriber")
    primary.execute("create publication p for table public.report", user="postgres")
    primary.execute("select fence.raise_token_floor(fence_now.n, 'later than the subscriber') from (select "
                    "(extract(epoch from clock_timestamp()) * 1000000)::bigint as n) fence_now")  # fmt: skip
    before = primary.tokens()
    source = f"host=127.0.0.1 port={primary.port} user=postgres dbname=app"
    subscriber.execute(
        f"create subscription s connection '{source}' publication p with (copy_data = false)", user="postgres"
    )
    holder = primary.supersede()
    primary.write(holder)
    wait_until(
        lambda: subscriber.execute("select body from public.report") == [(str(holder.token),)], "the write has arrived"
    )
    naive = subscriber.supersede("report:2").token
    assert naive < min(before), "without the command it would grant old numbers"
    subscriber.execute("drop subscription s", user="postgres")
    subscriber.execute("select fence.confirm_lineage()")
    Tokens(before=[*before, holder.token], old=primary.tokens(), new=subscriber.tokens()).judge()
    with pytest.raises(psycopg.DatabaseError):
        subscriber.write(holder)
