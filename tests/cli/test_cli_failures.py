"""What a failed command says: one message or one JSON object, its exit code, and no password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from unittest import mock

import psycopg
import pytest
from cli.command import CommandLine
from harness import Database
from psycopg.conninfo import conninfo_to_dict

from pyfence.cli._failures import failure_of, redacted
from pyfence.errors import FenceError, OutcomeUnknown

PASSWORD = "s3kret-p4ss"
NOWHERE = f"postgresql://u:{PASSWORD}@127.0.0.1:1/nothing"
COMMANDS = {
    "migrate up": ["migrate", "up"],
    "migrate down": ["migrate", "down"],
    "migrate current": ["migrate", "current"],
    "migrate check": ["migrate", "check"],
    "migrate stamp": ["migrate", "stamp"],
    "protect": ["protect", "t", "x"],
    "set-mode": ["set-mode", "t", "enforce"],
    "unprotect": ["unprotect", "t"],
    "status": ["status"],
    "leases": ["leases"],
    "history": ["history"],
    "revoke": ["revoke", "x", "--reason", "y"],
    "role add": ["role", "add", "r", "--as", "client"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_unreachable_database_is_exit_code_3(command: list[str]) -> None:
    nowhere = CommandLine(NOWHERE)
    done = nowhere(*command, code=3)
    assert done.out == ""
    assert done.err.startswith("error: cannot connect to the database [08001]\n")
    assert "PYFENCE_DATABASE_URL" in done.err
    with_json = nowhere("--json", *command, code=3)
    assert with_json.error["code"] == "08001"
    assert PASSWORD not in done.err + with_json.out + with_json.err


def test_a_wrong_user_or_database_is_exit_code_3(db: Database) -> None:
    for url in (db.url("nobody_at_all"), db.cluster.url("no_such_database", "app")):
        error = CommandLine(url)("status", "--json", code=3).error
        assert "nobody_at_all" in error["detail"] or "no_such_database" in error["detail"]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A URL at which somebody takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"postgresql://u:{PASSWORD}@127.0.0.1:{server.getsockname()[1]}/x"


def test_a_server_that_does_not_answer_is_given_up(silent_server: str) -> None:
    done = CommandLine(silent_server)("status", "--timeout", "0.3", code=3)
    assert "[08001]" in done.err
    assert PASSWORD not in done.err


def test_a_server_that_falls_silent_later_is_given_up(db: Database) -> None:
    # A relay that lets the first answers through and then nothing more.
    port = int(conninfo_to_dict(db.url())["port"])
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def relay() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                threading.Thread(target=copy, args=(client, server, None), daemon=True).start()
                copy(server, client, b"BEGIN")

        def copy(source: socket.socket, target: socket.socket, until: bytes | None) -> None:
            while data := source.recv(65536):
                if until is not None and until in data:
                    source.recv(1)  # swallows it, and waits for the end
                    return
                target.sendall(data)

        threading.Thread(target=relay, daemon=True).start()
        url = db.url("monitor").replace(f":{port}", f":{listener.getsockname()[1]}")
        done = CommandLine(url)("status", "--timeout", "0.3", "--json", code=3)
        assert done.error["code"] == "outcome_unknown"


URLS_THAT_CANNOT_BE_READ = [
    f"postgresql://u:{PASSWORD}/x@host:port/db",
    f"postgresql://u:p@{PASSWORD}@127.0.0.1/db",
    f"postgresql://u:{PASSWORD}@host:notaport/db",
    f"postgresql://u:{PASSWORD}@host/db?nonsense=1",
    f"host=x password={PASSWORD} nonsense",
    f"mysql://u:{PASSWORD}@host/db",
    f"postgresql://u:%zz{PASSWORD}@host/db",
    f"postgresql://u:12/{PASSWORD}@host/db",
]


@pytest.mark.parametrize("url", URLS_THAT_CANNOT_BE_READ)
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_a_url_that_cannot_be_read_is_a_usage_error_that_does_not_repeat_it(url: str, debug: list[str]) -> None:
    for done in (
        CommandLine(None)("--database-url", url, *debug, "status", code=2),
        CommandLine(url)(*debug, "status", "--json", code=2),
        CommandLine(None)("demo", "--database-url", url, *debug, code=2),
    ):
        assert PASSWORD not in done.out + done.err
    assert "PYFENCE_DATABASE_URL" in CommandLine(url)("status", "--json", code=2).error["message"]


@pytest.mark.parametrize("mistake", [NOWHERE, f"host=x password='{PASSWORD} x'", f"host=x password={PASSWORD} user=y"])
def test_a_url_in_the_wrong_place_is_not_repeated(mistake: str) -> None:
    for arguments in ([mistake], ["status", "x", mistake], ["migrate", mistake], ["leases", "--limit", mistake]):
        for form in ([], ["--json"]):
            done = CommandLine(None)(*form, *arguments, code=2)
            assert PASSWORD not in done.out + done.err


def test_usage_errors_in_json(cli: CommandLine) -> None:
    for command in (
        ["--json"],
        ["nonsense", "--json"],
        ["--json", "protect"],
        ["protect", "--json", "t", "x", "--mode", "?"],
    ):
        assert cli(*command, code=2).error["code"] == "usage"


def test_debug_shows_a_traceback_and_no_password() -> None:
    nowhere = CommandLine(NOWHERE)
    with mock.patch("cli.command.checked", lambda done, code: done):
        done = nowhere("--debug", "status")
    assert done.code == 3
    assert "Traceback" in done.err
    assert PASSWORD not in done.err


def test_a_defect_is_one_message_too(cli: CommandLine) -> None:
    with mock.patch("pyfence.cli._look.limited", side_effect=RuntimeError(f"bug at {NOWHERE}")):
        done = cli("status", code=70)
        assert "RuntimeError" in done.err
        assert "--debug" in done.err
        assert PASSWORD not in done.err
        assert cli("status", "--json", code=70).error["code"] == "defect"


def test_an_interrupt_is_exit_code_130(cli: CommandLine) -> None:
    with mock.patch("pyfence.cli._look.limited", side_effect=KeyboardInterrupt):
        assert cli("status", code=130).out == ""
        assert cli("status", "--json", code=130).error["code"] == "interrupted"


# -- where the database comes from ------------------------------------------------------------------------------------


def test_the_option_wins_over_the_variable_over_libpqs_own(db: Database, empty_db: Database) -> None:
    pg = {f"PG{name.upper()}": value for name, value in conninfo_to_dict(empty_db.url("fence_owner")).items()}
    pg["PGDATABASE"] = pg.pop("PGDBNAME")
    pg = {name: str(value) for name, value in pg.items()}
    assert CommandLine(None)("migrate", "current", env=pg).out == "base\n", "libpq's own variables"
    assert CommandLine("")("migrate", "current", env=pg).out == "base\n", "an empty variable is none"
    assert CommandLine(db.url("fence_owner"))("migrate", "current", env=pg).out != "base\n", "the variable wins"
    option = ["--database-url", empty_db.url("fence_owner")]
    url = db.url("fence_owner")
    assert CommandLine(url)(*option, "migrate", "current").out == "base\n", "the option wins"
    assert CommandLine(url)("migrate", *option, "current").out == "base\n"
    assert CommandLine(url)("migrate", "current", *option).out == "base\n"
    assert CommandLine(url)("--database-url", NOWHERE, "migrate", "current", *option).out == "base\n", "the last one"


@pytest.mark.parametrize("prefix", ["postgresql://", "postgres://", "postgresql+psycopg://", "postgres+psycopg://"])
def test_every_spelling_of_a_url(db: Database, prefix: str) -> None:
    url = prefix + db.url("fence_owner").split("://", 1)[1]
    assert CommandLine(url)("migrate", "check").code == 0
    assert CommandLine(url)("status").code == 0


def test_the_servers_habits_do_not_matter(db: Database) -> None:
    # As a database's defaults may be: another time zone and date style, and no READ COMMITTED.
    for setting in (
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German'",
        "default_transaction_isolation = serializable",
    ):
        db.execute(f"alter database {db.name} set {setting}", user="fence_owner")
    db.execute("select fence.acquire('x')", user="app")
    (lease,) = CommandLine(db.url("monitor"))("leases", "--json").json["leases"]
    assert lease["expires_at"].endswith("+00:00")
    assert CommandLine(db.url("app_owner"))("revoke", "x", "--reason", "y").code == 0


# -- the translation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at postgresql://u:pw@h/db end", "at postgresql://***@h/db end"),
        ("postgresql+psycopg://u:p@w@h/db", "postgresql+psycopg://***@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("host=h password=pw dbname=d", "host=h password=*** dbname=d"),
        (r"password = 'p \' w' x", "password = *** x"),
        ("postgresql://h/db?password=pw&user=u", "postgresql://h/db?password=***&user=u"),
        ("password authentication failed", "password authentication failed"),
    ],
)
def test_redacted(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (psycopg.OperationalError("lost"), "08006", 3),
        (psycopg.errors.AdminShutdown("shut down"), "57P01", 3),
        (psycopg.errors.LockNotAvailable("busy"), "55P03", 3),
        (psycopg.errors.TooManyConnections("full"), "53300", 3),
        (psycopg.errors.ReadOnlySqlTransaction("standby"), "25006", 1),
        (OutcomeUnknown("who knows"), "outcome_unknown", 3),
        (FenceError("no"), "refused", 1),
    ],
)
def test_which_code_an_error_ends_with(error: Exception, code: str, exit_code: int) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert (failure.code, failure.exit_code) == (code, exit_code)


def test_anything_else_is_a_defect() -> None:
    assert failure_of(ValueError("x")) is None
    assert failure_of(psycopg.ProgrammingError("the driver was misused")) is None
