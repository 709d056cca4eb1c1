"""`pyfence status`, `leases`, `history` and `revoke`."""

from __future__ import annotations

from datetime import datetime

import pytest
from cli.command import CommandLine
from harness import SUPERUSER, Database, wait_until

import pyfence
from pyfence import migrate


def acquire(db: Database, resource: str, *, ttl: str = "1 hour", owner: str = "worker") -> tuple[int, str]:
    """A lease's token and secret."""
    ((token, secret),) = db.execute(
        "select token, secret from fence.acquire(%s, %s::interval, %s)", (resource, ttl, owner), user="app"
    )
    return token, secret


def test_status_shows_everything_in_one_look(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    token, _ = acquire(db, "report:1")
    lines = [line.split() for line in cli("status").out.splitlines()]
    assert ["schema", "version:", migrate.head()] in lines
    title = lines.index(["leases:", "1", "held"])
    assert lines[title + 1][:5] == ["RESOURCE", "STATE", "HOLDER", "TOKEN", "LEFT"]
    assert lines[title + 2][:4] == ["report:1", "held", "worker", str(token)]
    assert lines[title + 2][4].startswith("59m")
    assert [line[:4] for line in lines if line[:1] == [report]] == [[report, "report:{id}", "enforce", "yes"]]


def test_status_in_json_is_exact(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    token, _ = acquire(db, "report:1")
    status = cli("status", "--json").json
    assert set(status) == {
        "schema_version",
        "authority",
        "lease_counts",
        "leases",
        "truncated",
        "in_flight",
        "violations_last_hour",
        "protected_tables",
        "coverage",
        "doctor",
    }
    assert (status["schema_version"], status["lease_counts"]) == (migrate.head(), {"held": 1})
    (lease,) = status["leases"]
    assert lease["token"] == token
    assert isinstance(lease["token"], int)
    assert 3500 < lease["seconds_left"] < 3600
    assert lease["ttl_seconds"] == 3600
    ((expires_at,),) = db.execute("select expires_at from fence.leases")
    assert datetime.fromisoformat(lease["expires_at"]) == expires_at
    assert datetime.fromisoformat(lease["expires_at"]).tzinfo is not None


def test_status_of_a_database_with_nothing_in_it(cli: CommandLine) -> None:
    out = cli("status").out
    assert "leases: none" in out
    assert "protected tables: none" in out
    status = cli("status", "--json").json
    assert (status["schema_version"], status["authority"]["state"]) == (migrate.head(), "issuing")
    assert status["doctor"]["errors"] == []
    empty = ("lease_counts", "leases", "truncated", "in_flight", "violations_last_hour", "protected_tables", "coverage")
    assert not any(status[name] for name in empty)


@pytest.mark.parametrize("schema", [False, True], ids=["no schema", "an empty schema"])
@pytest.mark.parametrize("command", [["status"], ["leases"], ["history"], ["revoke", "x", "--reason", "y"]])
def test_a_database_without_pyfence_is_told_to_migrate(
    empty_cli: CommandLine, empty_db: Database, command: list[str], schema: bool
) -> None:
    if schema:
        empty_db.execute("create schema fence", user="fence_owner")
    error = empty_cli("--json", *command, code=1).error
    assert error["code"] == "LF011"
    assert "pyfence migrate up" in error["hint"]
    assert "pyfence migrate up" in empty_cli(*command, code=1).err


def test_status_of_one_resource(cli: CommandLine, db: Database) -> None:
    acquire(db, "report:1")
    acquire(db, "report:2")
    cli("revoke", "report:2", "--reason", "test")
    (lease,) = cli("status", "report:2", "--json").json["leases"]
    assert (lease["resource"], lease["state"], lease["seconds_left"]) == ("report:2", "closed", None)
    assert [lease["resource"] for lease in cli("status", "--json").json["leases"]] == ["report:1"]
    unknown = cli("status", "report:3", code=1)
    assert unknown.out == ""
    assert "'report:3'" in unknown.err
    assert cli("status", "report:3", "--json", code=1).error["code"] == "not_found"


def test_a_monitor_sees_and_does_nothing(db: Database, cli: CommandLine, report: str) -> None:
    cli("protect", report, "report:{id}")
    acquire(db, "report:1")
    monitor = CommandLine(db.url("monitor"))
    assert len(monitor("status", "--json").json["protected_tables"]) == 1
    assert len(monitor("leases", "--json").json["leases"]) == 1
    assert len(monitor("history", "--json").json["history"]) == 2
    assert monitor("revoke", "report:1", "--reason", "x", "--json", code=1).error["code"] == "42501"


def test_a_role_without_rights_is_told_which_it_needs(db: Database) -> None:
    for command in ("status", "leases", "history"):
        error = CommandLine(db.url("outsider"))(command, "--json", code=1).error
        assert error["code"] == "42501"
        assert "--as monitor" in error["hint"]


def test_leases_lists_open_ones_or_all(cli: CommandLine, db: Database) -> None:
    for name in ("c", "a", "b"):
        acquire(db, name)
    cli("revoke", "b", "--reason", "host is gone")
    assert [lease["resource"] for lease in cli("leases", "--json").json["leases"]] == ["a", "c"]
    everything = cli("leases", "--all", "--json").json["leases"]
    assert [(lease["resource"], lease["state"]) for lease in everything] == [
        ("a", "held"),
        ("b", "closed"),
        ("c", "held"),
    ]
    assert "host is gone" in everything[1]["closed_reason"]
    assert "host is gone" in cli("leases", "--all").out


def test_an_expired_lease_is_listed_as_such(cli: CommandLine, db: Database) -> None:
    acquire(db, "a", ttl="1 millisecond")
    wait_until(lambda: db.execute("select state from fence.leases") == [("expired",)], "the lease has expired")
    (lease,) = cli("leases", "--json").json["leases"]
    assert (lease["state"], lease["seconds_left"]) == ("expired", None)
    assert cli("leases").out.splitlines()[1].split()[:2] == ["a", "expired"]


def test_a_list_cut_short_says_so(cli: CommandLine, db: Database) -> None:
    for name in ("a", "b", "c"):
        acquire(db, name)
    short = cli("leases", "--limit", "2", "--json")
    assert (len(short.json["leases"]), short.json["truncated"]) == (2, True)
    assert "--limit" in short.err
    assert cli("leases", "--limit", "3", "--json").json["truncated"] is False
    newest = cli("history", "--limit", "1", "--json")
    assert ([event["resource"] for event in newest.json["history"]], newest.json["truncated"]) == (["c"], True)
    assert cli("leases", "--limit", "0", code=2).out == ""


def test_history_tells_what_when_and_who(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    token, _ = acquire(db, "report:1")
    acquire(db, "report:2")
    cli("revoke", "report:1", "--reason", "test")
    events = cli("history", "report:1", "--json").json["history"]
    assert [(event["event"], event["token"]) for event in events] == [("granted", token), ("closed", token)]
    assert [event["role"] for event in events] == ["app", "app_owner"]
    assert len(cli("history", "--json").json["history"]) == 4
    assert "public.report report:{id} enforce" in cli("history").out


def test_revoke_ends_a_lease_once(cli: CommandLine, db: Database) -> None:
    with pyfence.Fence(db.url("app")) as fence:
        lease = fence.acquire("report:1", ttl=60)
        done = cli("revoke", "report:1", "--reason", "host is gone")
        assert (done.out, "report:1" in done.err) == ("revoked\n", True)
        with pytest.raises(pyfence.StaleToken):
            lease.renew()
    again = cli("revoke", "report:1", "--reason", "host is gone", "--json", code=1)
    assert again.json == {"resource": "report:1", "revoked": False}
    assert cli("revoke", "nobody", "--reason", "x", code=1).out == "none\n"


def test_status_shows_who_stands_in_the_way_and_revoke_ends_them(cli: CommandLine, db: Database) -> None:
    token, secret = acquire(db, "report:1")
    acquire(db, "report:2")
    writer = db.connect("app", application_name="nightly")
    writer.execute("select fence.present('report:1', %s, %s)", (token, secret))
    root = CommandLine(db.url(SUPERUSER))
    out = root("status").out
    assert "in flight, which a takeover waits for: 1" in out
    assert f"report:1  {token}  {writer.info.backend_pid}  app   nightly" in out
    assert "in flight: none" in root("status", "report:2").out
    (shown,) = cli("status", "report:1", "--json").json["in_flight"]
    assert (shown["pid"], shown["resource"], shown["role"]) == (writer.info.backend_pid, "report:1", "app")
    assert shown["state"] is None, "not for app_owner to see"
    call = ["revoke", "report:1", "--reason", "frozen", "--evict"]
    refused = cli(*call, "--json", code=1).error
    assert (refused["code"], refused["hint"]) == ("42501", "grant pg_signal_backend to fence_owner;")
    db.execute(refused["hint"], user=SUPERUSER)
    try:
        assert cli(*call, "--json").json == {"resource": "report:1", "revoked": False, "evicted": 1}
        assert cli(*call, "--json", code=1).json == {"resource": "report:1", "revoked": False, "evicted": 0}
    finally:
        db.execute("revoke pg_signal_backend from fence_owner", user=SUPERUSER)
    assert cli("status", "--json").json["in_flight"] == []


def test_revoke_needs_a_reason(cli: CommandLine) -> None:
    assert "--reason" in cli("revoke", "report:1", code=2).err
    assert cli("revoke", "report:1", "--reason", "", code=2).out == ""
    assert cli("revoke", "report:1", "--reason", "x" * 2000, "--json", code=1).error["code"] == "LF010"


def test_no_secret_is_shown_anywhere(cli: CommandLine, db: Database, report: str) -> None:
    cli("protect", report, "report:{id}")
    secrets = [acquire(db, f"report:{n}")[1] for n in range(3)]
    hashes = [bytes(row[0]).hex() for row in db.execute("select secret_hash from fence._lease", user="postgres")]
    cli("revoke", "report:2", "--reason", "test")
    shown = ""
    for command in (["status"], ["leases", "--all"], ["history"], ["status", "report:0"], ["status", "report:2"]):
        for form in ([], ["--json"]):
            done = cli(*command, *form)
            shown += done.out + done.err
    assert "report:1" in shown
    assert [secret for secret in (*secrets, *hashes) if secret in shown] == []


def test_a_name_cannot_play_with_the_terminal(cli: CommandLine, db: Database) -> None:
    name = "a\x1b[2J\x9b\u202eb\nheld 表"
    acquire(db, name, owner="\x1b]0;title\x07")
    table = cli("leases").out
    assert len(table.splitlines()) == 2
    assert r"a\x1b[2J\x9b\u202eb\nheld 表" in table
    (lease,) = cli("leases", "--json").json["leases"]
    assert lease["resource"] == name
    assert "\x1b" not in cli("status", "x\x1b[2J", code=1).err
