"""The authority knows whose it is. Another identity: nothing is granted or accepted under the old lineage."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from cli.command import CommandLine
from errors.reader import Reader
from guards.scene import Lease, acquire, ask, check_refusal, expire, present, protect, release, supersede
from harness import Database, edit_authority, sqlstate

import pyfence

UPDATE = "update public.report set body = 'new'"
DAY = 86_400_000_000

RESTART = "started_at = started_at - interval '1 h'"
#: Each way in which the row can tell that it is not where it was written; what it does not know counts as changed.
FOREIGN = {
    "timeline": "timeline = '0000002A'",
    "database": "database_oid = 1",
    "lease table": "lease_oid = 1",
    "cluster": f"system_identifier = 1, {RESTART}",
    "no timeline": "timeline = null",
    "no database": "database_oid = null",
    "no lease table": "lease_oid = null",
    "no cluster": f"system_identifier = null, {RESTART}",
    "stamp": "floor = floor",
    "no stamp": "stamp = null",
}
#: Edits that do not keep the seal, as a restored row has none.
UNSEALED = {FOREIGN["stamp"], FOREIGN["no stamp"]}


@pytest.fixture
def report(db: Database) -> str:
    db.execute("create table public.report (id int primary key, body text)")
    db.execute("insert into public.report values (1, 'old')")
    protect(db, "public.report", "report:{id}")
    return "public.report"


@pytest.fixture
def lease(db: Database, report: str) -> Lease:
    return acquire(db, "report:1")


def edit(db: Database, change: str) -> None:
    if change in UNSEALED:
        db.execute(f"update fence._authority set {change}", user="fence_owner")
    else:
        edit_authority(db.url("fence_owner"), change)


def set_option(db: Database, name: str, value: str) -> None:
    db.execute("select fence.set_option(%s, %s, 'test')", (name, value))


def codes(db: Database, lease: Lease) -> list[str | None]:
    """What present, renew and renew_all say to a lease."""
    found: list[str | None] = []
    connection = db.connect("app")

    def attempt(*statements: tuple[str, tuple[Any, ...]]) -> None:
        try:
            for statement, parameters in statements:
                connection.execute(statement, parameters)
            found.append(None)
        except psycopg.DatabaseError as error:
            found.append(error.sqlstate)
        connection.rollback()

    attempt(("select fence.present(%s, %s, %s)", lease.parameters))
    attempt(("select fence.renew(%s, %s, %s)", lease.parameters))
    ((code,),) = db.execute(
        "select code from fence.renew_all(%s, %s, %s, null)", ([lease.resource], [lease.token], [lease.secret]),
        user="app",
    )  # fmt: skip
    return [*found, code]


def lineages(db: Database) -> list[tuple[Any, ...]]:
    return db.execute(
        "select event, detail ->> 'kind', detail ->> 'why' from fence.history "
        "where event in ('lineage', 'restart') order by id"
    )


@pytest.mark.parametrize("part", FOREIGN)
def test_under_auto_a_holder_is_refused_before_anybody_acquires(db: Database, lease: Lease, part: str) -> None:
    connection = db.connect("app")
    present(connection, lease)  # open while it happens: it has the lock, and a successor will wait for it
    edit(db, FOREIGN[part])
    assert codes(db, lease) == ["LF001"] * 3
    with sqlstate("LF001") as refused:
        connection.execute(UPDATE)
    assert "earlier lineage" in refused.diag.message_detail
    connection.rollback()
    assert not release(db, lease)
    assert db.execute("select state from fence.leases", user="monitor") == [("superseded lineage",)]
    findings = db.execute("select severity, code from fence.audit() where object = 'fence._authority'")
    assert findings == [("warning", "identity-changed")]
    newer = acquire(db, "report:1")
    ((now,),) = db.execute("select fence._clock_number(clock_timestamp())", user="fence_owner")
    assert lease.token < newer.token
    assert now - DAY < newer.token <= now
    assert [event for event, _, _ in lineages(db)] == ["lineage"]
    assert codes(db, lease) == ["LF001"] * 3
    present(connection, newer)
    assert connection.execute(UPDATE).rowcount == 1
    connection.commit()
    assert db.execute("select code from fence.audit() where object = 'fence._authority'") == []


@pytest.mark.parametrize("part", FOREIGN)
def test_under_confirm_nothing_moves_before_an_administrator_has_looked(db: Database, lease: Lease, part: str) -> None:
    set_option(db, "lineage_policy", "confirm")
    edit(db, FOREIGN[part])
    assert codes(db, lease) == ["LF009"] * 3
    for resource in ("report:1", "report:2"):
        with sqlstate("LF009") as refused:
            ask(db, resource)
        check_refusal(refused.diag)
        assert "clock" not in refused.diag.message_detail + refused.diag.message_hint
    findings = db.execute("select severity, code from fence.audit() where object = 'fence._authority'")
    assert findings == [("error", "authority-quarantined")]
    assert lineages(db) == []
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert [row[:2] for row in lineages(db)] == [("lineage", "confirmed")]
    assert codes(db, lease) == ["LF001"] * 3
    assert acquire(db, "report:1").token > lease.token


def test_a_restart_goes_on_and_is_recorded(db: Database, lease: Lease) -> None:
    edit(db, RESTART)
    assert codes(db, lease) == [None] * 3
    assert db.execute("select code from fence.audit() where object = 'fence._authority'") == []
    assert supersede(db, lease).token > lease.token
    assert lineages(db) == [("restart", None, "the server was started again")]
    acquire(db, "report:2")
    assert len(lineages(db)) == 1


def test_a_restart_goes_on_where_nobody_may_read_what_cluster_it_is(db: Database, lease: Lease) -> None:
    db.execute("revoke execute on function pg_catalog.pg_control_system() from public", user="postgres")
    edit(db, f"system_identifier = null, {RESTART}")
    assert codes(db, lease) == [None] * 3
    acquire(db, "report:2")
    assert [event for event, _, _ in lineages(db)] == ["restart"]


@pytest.mark.parametrize(
    ("option", "change"),
    [("lineage_policy", FOREIGN["timeline"]), ("on_restart", RESTART), ("need_sync", "floor = floor + 0")],
)
def test_an_option_that_is_lost_is_the_strict_one(db: Database, lease: Lease, option: str, change: str) -> None:
    db.execute("delete from fence._option where name = %s", (option,), user="fence_owner")
    edit(db, change)
    with sqlstate("LF009") as refused:
        ask(db, "report:2")
    check_refusal(refused.diag)


def test_a_row_that_keeps_no_seal_grants_nothing(db: Database, lease: Lease) -> None:
    """A superuser's trigger, say, undoes every change of it."""
    edit(db, FOREIGN["timeline"])
    db.execute(
        """
        create function public.undo() returns trigger language plpgsql as $$ begin return old; end $$;
        create trigger undo before update on fence._authority for each row execute function public.undo()
        """,
        user="postgres",
    )
    with sqlstate("LF009") as refused:
        ask(db, "report:2")
    check_refusal(refused.diag)
    assert "seal" in refused.diag.message_primary


def test_a_row_that_is_lost_is_told_with_the_dump_that_has_it(db: Database, lease: Lease) -> None:
    db.execute("delete from fence._authority", user="fence_owner")
    for call in ("acquire('report:2')", "confirm_lineage()"):
        with sqlstate("LF009") as refused:
            db.execute(f"select from fence.{call}")
        check_refusal(refused.diag)
        assert "pg_dump" in refused.diag.message_hint


def test_a_lease_that_is_over_is_stale_whatever_the_authority_waits_for(db: Database, lease: Lease) -> None:
    release(db, lease)
    set_option(db, "lineage_policy", "confirm")
    edit(db, FOREIGN["timeline"])
    assert codes(db, lease) == ["LF001"] * 3


def test_a_restart_that_has_to_be_confirmed(db: Database, lease: Lease) -> None:
    """Strict: a restart may be a volume snapshot of yesterday."""
    set_option(db, "on_restart", "confirm")
    edit(db, RESTART)
    assert codes(db, lease) == ["LF009"] * 3
    with sqlstate("LF009") as refused:
        ask(db, "report:2")
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert codes(db, lease) == ["LF001"] * 3
    assert acquire(db, "report:1").token > lease.token


def test_a_clock_behind_the_tokens_quarantines(db: Database, lease: Lease) -> None:
    """As after a failover to a server whose clock is an hour late."""
    edit(db, "floor = floor + 3600000000, floor_at = floor_at + interval '1 h', timeline = '0000002A'")
    with sqlstate("LF009") as refused:
        ask(db, "report:1")
    check_refusal(refused.diag)
    ((floor,),) = db.execute("select floor from fence._authority", user="fence_owner")
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert acquire(db, "report:1").token > floor


@pytest.mark.parametrize("floor", ["the clock's", "one too low", "the highest that is known"])
def test_no_lineage_is_confirmed_below_the_tokens(db: Database, lease: Lease, floor: str) -> None:
    edit(db, "floor = floor + 3600000000, floor_at = floor_at + interval '1 h', timeline = '0000002A'")
    ((before,),) = db.execute("select floor from fence._authority", user="fence_owner")
    ((known,),) = db.execute("select fence._highest_known()", user="fence_owner")
    floors = {"the clock's": None, "one too low": lease.token + 1, "the highest that is known": known}
    with sqlstate("LF009") as refused:
        db.execute("select fence.confirm_lineage(%s)", (floors[floor],))
    check_refusal(refused.diag)
    assert db.execute("select floor from fence._authority", user="fence_owner") == [(before,)]
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert acquire(db, "report:1").token > before


def test_a_clock_behind_the_tokens_after_a_restart_quarantines(db: Database, lease: Lease) -> None:
    """An hour back: 36 seconds of tokens, among them those of the last hour."""
    edit(db, "floor = floor - 1000000, " + RESTART)
    with sqlstate("LF009") as refused:
        ask(db, "report:2")
    assert codes(db, lease) == [None] * 3, "they are what the database remembers"
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert acquire(db, "report:1").token > lease.token


def test_a_clock_that_stands_where_the_last_token_was_is_not_behind(db: Database, lease: Lease) -> None:
    edit(db, f"floor = {lease.token}, floor_at = clock_timestamp() + interval '1 h', {RESTART}")
    assert supersede(db, lease).token > lease.token
    assert [event for event, _, _ in lineages(db)] == ["restart"]


def test_a_clock_that_steps_back_under_a_running_server_is_told_and_harms_nobody(db: Database, lease: Lease) -> None:
    edit(db, "floor = floor - 1000000")
    findings = db.execute("select severity, code from fence.audit() where object = 'fence._authority'")
    assert findings == [("warning", "clock-behind")]
    assert supersede(db, lease).token == lease.token + 1


def test_a_used_up_resource_does_not_hold_up_a_new_lineage(db: Database, lease: Lease) -> None:
    db.execute("update fence._lease set token = 9223372036854775807", user="fence_owner")
    edit(db, RESTART)
    acquire(db, "report:2")
    assert [event for event, _, _ in lineages(db)] == ["restart"]
    assert db.execute("select fence.confirm_lineage() < 9000000000000000") == [(True,)]


def test_strict_replication_grants_nothing_without_a_standby(db: Database, lease: Lease) -> None:
    set_option(db, "need_sync", "on")
    with sqlstate("LF009") as refused:
        ask(db, "report:2")
    check_refusal(refused.diag)
    state = db.execute("select state, remedy from fence._authority_state()", user="monitor")
    assert state == [("quarantined", "Set synchronous_standby_names.")]
    assert codes(db, lease) == [None] * 3
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    acquire(db, "report:2")


def test_of_all_who_ask_at_once_one_begins_the_lineage(db: Database, lease: Lease) -> None:
    """The others wait for its commit, and are granted in the same lineage; or begin one if it rolls back."""
    edit(db, FOREIGN["timeline"])
    ((lineage,),) = db.execute("select lineage from fence._authority", user="fence_owner")
    first = db.connect("app")
    undone = acquire(first, "report:1")
    others = [db.connect("app", autocommit=True) for _ in range(3)]
    asking = [
        db.start_blocked(other, "select token from fence.acquire(%s)", (f"report:{number}",))
        for number, other in enumerate(others, 2)
    ]
    first.rollback()
    tokens = [call.result(20).fetchone()[0] for call in asking]  # type: ignore[index]
    assert [event for event, _, _ in lineages(db)] == ["lineage"]
    assert min(tokens) > lease.token
    assert db.execute("select lineage from fence._authority", user="fence_owner") == [(lineage + 1,)]
    with sqlstate("LF006"):
        present(db.connect("app"), undone)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_of_two_old_snapshots_that_would_begin_the_lineage_one_is_to_try_again(
    db: Database, lease: Lease, end: str
) -> None:
    """Both wait for the authority's row, neither for the other: no deadlock."""
    edit(db, FOREIGN["timeline"])
    gate = db.connect("fence_owner")
    gate.execute("select from fence._authority for share")
    first, second = (db.connect("app", isolation=psycopg.IsolationLevel.REPEATABLE_READ) for _ in range(2))
    asking = db.start_blocked(first, "select granted from fence.acquire('report:2')", by=gate)
    after = db.start_blocked(second, "select granted from fence.acquire('report:3')")
    gate.rollback()
    assert asking.result(10).fetchall() == [(True,)]
    db.wait_until_blocked(second, by=first)
    if end == "commit":
        first.commit()
        with sqlstate("40001"):
            after.result(10)
    else:
        first.rollback()
        assert after.result(10).fetchall() == [(True,)]
        second.commit()
    assert [event for event, _, _ in lineages(db)] == ["lineage"]


# -- the administrator's calls -----------------------------------------------------------------------------------------


def test_confirming_without_need_begins_a_lineage_too(db: Database, lease: Lease) -> None:
    ((floor,),) = db.execute("select fence.confirm_lineage()")
    assert floor > lease.token
    assert codes(db, lease) == ["LF001"] * 3
    assert acquire(db, "report:1").token >= floor


def test_a_floor_above_what_a_destination_remembers(db: Database, lease: Lease) -> None:
    remembered = lease.token + 3_600_000_000
    ((floor,),) = db.execute("select fence.raise_token_floor(%s, 'from the destination')", (remembered,))
    assert floor == remembered + 1
    assert codes(db, lease) == [None] * 3, "leases go on"
    first = acquire(db, "report:2")
    assert remembered < first.token < remembered + DAY
    assert supersede(db, lease).token > remembered
    ((lower,),) = db.execute("select fence.raise_token_floor(5, 'no step back')")
    assert lower >= floor
    detail = "select detail ->> 'asked', detail ->> 'reason' from fence.history where event = 'floor' order by id"
    assert db.execute(detail) == [(str(remembered), "from the destination"), ("5", "no step back")]


@pytest.mark.parametrize("force", ["", ", false", ", null"])
def test_a_floor_far_ahead_has_to_be_meant(db: Database, report: str, force: str) -> None:
    with sqlstate("LF010") as refused:
        db.execute(f"select fence.raise_token_floor(3000000000000000, 'x'{force})")
    Reader(db, user="app_owner").follow(refused.diag.message_hint)
    assert acquire(db, "report:1").token >= 3000000000000000


def test_a_lineage_is_not_confirmed_more_than_a_day_ahead_of_what_is_known(db: Database, lease: Lease) -> None:
    known = lease.token + DAY
    db.execute("update fence._lease set token = %s", (known,), user="fence_owner")
    with sqlstate("LF010") as refused:
        db.execute("select fence.confirm_lineage(%s)", (known + DAY + 1,))
    check_refusal(refused.diag)
    assert db.execute("select fence.confirm_lineage(%s)", (known + DAY,)) == [(known + DAY,)]


def test_a_floor_waits_for_grants_in_flight(db: Database, report: str) -> None:
    acquirer = db.connect("app")
    inflight = acquire(acquirer, "report:1")
    admin = db.connect("app_owner", autocommit=True)
    raising = db.start_blocked(admin, "select fence.raise_token_floor(%s, 'x')", (inflight.token + 10**9,), by=acquirer)
    late = db.connect("app", autocommit=True)
    asking = db.start_blocked(late, "select token from fence.acquire('report:2')", by=admin)
    acquirer.commit()
    (floor,) = raising.result(20).fetchone()  # type: ignore[misc]
    assert inflight.token < floor
    assert asking.result(20).fetchone()[0] >= floor  # type: ignore[index]


def test_a_confirmed_lineage_waits_for_grants_in_flight(db: Database, report: str) -> None:
    acquirer = db.connect("app")
    inflight = acquire(acquirer, "report:1")
    admin = db.connect("app_owner", autocommit=True)
    confirming = db.start_blocked(admin, "select fence.confirm_lineage()", by=acquirer)
    acquirer.commit()
    (floor,) = confirming.result(20).fetchone()  # type: ignore[misc]
    assert inflight.token < floor
    with sqlstate("LF001"):
        present(db.connect("app"), inflight)


def test_a_floor_is_not_waited_for_by_those_who_write(db: Database, lease: Lease) -> None:
    writer = db.connect("app")
    present(writer, lease)
    writer.execute(UPDATE)
    db.execute("select fence.raise_token_floor(%s, 'x')", (lease.token + 10,))
    db.execute("select fence.confirm_lineage()")
    writer.commit()
    assert db.execute("select body from public.report") == [("new",)]


def test_a_snapshot_older_than_a_floor_grants_nothing(db: Database, report: str) -> None:
    old = db.connect("app", isolation=psycopg.IsolationLevel.REPEATABLE_READ)
    old.execute("select 1 from public.report")
    db.execute("select fence.raise_token_floor(%s, 'x')", (10**15,))
    with sqlstate("40001"):
        acquire(old, "report:1")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("fence.raise_token_floor(null, 'x')", "Pass"),
        ("fence.raise_token_floor(0, 'x')", "Pass"),
        ("fence.raise_token_floor(9100000000000000000, 'x', true)", "Pass"),
        ("fence.raise_token_floor(5, '')", "Say why"),
        ("fence.raise_token_floor(5, null)", "Say why"),
        ("fence.raise_token_floor(3000000000000000, 'x')", ", true);"),
        ("fence.confirm_lineage(-1)", "Pass"),
        ("fence.confirm_lineage(3000000000000000)", ", true);"),
        ("fence.set_option('nonsense', 'on', 'x')", "fence.options"),
        ("fence.set_option('need_sync', 'maybe', 'x')", "fence.options"),
        ("fence.set_option('need_sync', null, 'x')", "fence.options"),
        *(
            (f"fence.set_option('idle_timeout', '{value}', 'x')", "fence.options")
            for value in ("", "soon", "0", "2 days")
        ),
        ("fence.set_option(null, 'on', 'x')", "fence.options"),
        ("fence.set_option('need_sync', 'on', null)", "Say why"),
    ],
)
def test_bad_arguments(db: Database, report: str, call: str, hint: str) -> None:
    row = "select a.*, (select array_agg(o order by name) from fence._option o) from fence._authority a"
    before = db.execute(row, user="fence_owner")
    with sqlstate("LF010") as refused:
        db.execute(f"select {call}")
    check_refusal(refused.diag)
    assert hint in refused.diag.message_hint
    assert db.execute(row, user="fence_owner") == before
    if ", true);" in hint:
        Reader(db, user="app_owner").follow(refused.diag.message_hint)
        assert acquire(db, "report:1").token >= 3000000000000000


def test_options_say_what_they_are_and_who_changed_them(db: Database) -> None:
    assert db.execute("select name, value from fence.options order by name", user="monitor") == [
        ("idle_timeout", "ttl"),
        ("lineage_policy", "auto"), ("need_sync", "off"), ("on_restart", "accept"),
    ]  # fmt: skip
    set_option(db, "on_restart", "confirm")
    row = "select value, changed_by, reason from fence.options where name = 'on_restart'"
    assert db.execute(row) == [("confirm", "app_owner", "test")]
    assert db.execute("select detail ->> 'was' from fence.history where event = 'option'") == [("accept",)]


def test_an_option_changed_by_two_at_once_was_what_the_first_one_made_it(db: Database) -> None:
    change = "select fence.set_option('on_restart', %s, 'test')"
    first, second = db.connect("app_owner"), db.connect("app_owner")
    first.execute(change, ("confirm",))
    waiting = db.start_blocked(second, change, ("accept",), by=first)
    first.commit()
    waiting.result(10)
    second.commit()
    assert db.execute(
        "select detail ->> 'was', detail ->> 'value' from fence.history where event = 'option' order by id"
    ) == [("accept", "confirm"), ("confirm", "accept")]


@pytest.mark.parametrize("user", ["app", "monitor"])
def test_only_administrators_change_the_authority(db: Database, user: str) -> None:
    for call in ("confirm_lineage()", "raise_token_floor(5, 'x')", "set_option('need_sync', 'on', 'x')"):
        with sqlstate("42501"):
            db.execute(f"select fence.{call}", user=user)


# -- the seal ----------------------------------------------------------------------------------------------------------


def test_the_seal_holds_in_a_savepoint_and_through_vacuum(db: Database, lease: Lease) -> None:
    connection = db.connect("app_owner")
    connection.execute("savepoint a")
    connection.execute("select fence.raise_token_floor(5, 'x')")
    connection.execute("release a")
    connection.commit()
    for statement in ("vacuum full fence._authority", "vacuum freeze fence._authority", "cluster fence._authority"):
        db.execute(statement.replace("cluster fence._authority", "cluster fence._authority using _authority_pkey"),
                   user="postgres")  # fmt: skip
    assert codes(db, lease) == [None] * 3
    edit(db, FOREIGN["stamp"])
    assert codes(db, lease) == ["LF001"] * 3


def test_a_copy_of_the_database_begins_a_lineage_of_its_own(db: Database, lease: Lease) -> None:
    """Also under the old name: createdb -T, drop, rename."""
    for connection in db._connections:  # a template has nobody connected to it
        connection.close()
    name = f"{db.name}_copy"
    db.cluster.admin.execute(f"create database {name} template {db.name}")
    db.cluster.admin.execute(f"alter database {db.name} rename to {name}_old")
    db.cluster.admin.execute(f"alter database {name} rename to {db.name}")
    try:
        assert codes(db, lease) == ["LF001"] * 3
        assert acquire(db, "report:1").token > lease.token
    finally:
        db.cluster.admin.execute(f"drop database {name}_old with (force)")


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_line_shows_the_authority_and_ends_a_quarantine(db: Database, lease: Lease) -> None:
    admin, monitor = CommandLine(db.url("app_owner")), CommandLine(db.url("monitor"))
    shown = monitor("authority", "--json").json
    assert shown["authority"]["state"] == "issuing"
    assert shown["authority"]["timeline"] == shown["authority"]["present_timeline"]
    assert [option["name"] for option in shown["options"]] == [
        "idle_timeout",
        "lineage_policy",
        "need_sync",
        "on_restart",
    ]
    set_option(db, "lineage_policy", "confirm")
    edit(db, FOREIGN["timeline"])
    shown = monitor("authority", "--json", code=1).json
    assert shown["authority"]["state"] == "quarantined"
    text = monitor("authority", code=1).out
    assert "timeline 2A became 1" in text
    assert "select fence.confirm_lineage();" in text
    assert monitor("confirm-lineage", "--json", code=1).error["code"] == "42501"
    floor = admin("confirm-lineage", "--json").json["floor"]
    assert monitor("authority", "--json").json["authority"]["floor"] == floor
    expire(db, "report:1")
    assert acquire(db, "report:1").token >= floor


def test_the_client_loses_its_lease_to_a_quarantine_at_its_next_renewal(db: Database, report: str) -> None:
    set_option(db, "lineage_policy", "confirm")
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=60)
        with pytest.raises(pyfence.LeaseLost) as lost, fence.lease("report:2", ttl=3) as renewed:
            edit(db, FOREIGN["timeline"])
            assert renewed.lost.wait(20)
            renewed.raise_if_lost()
        assert lost.value.reason == "superseded"
        for call in (lease.renew, lambda: fence.acquire("report:3")):
            with pytest.raises(pyfence.AuthorityQuarantined) as refused:
                call()
            assert "fence.confirm_lineage()" in str(refused.value.hint)
        db.execute("select fence.confirm_lineage()")
        assert fence.acquire("report:1").token > lease.token
