"""A real PostgreSQL for the tests: one cluster a process, a migrated template, a database of its own for every test.

Tests order what happens by what the server says (`wait_until_blocked`), never by sleeping and hoping.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import psycopg
import pytest
import testing.postgresql  # type: ignore[import-untyped]
from psycopg import sql
from psycopg.rows import TupleRow

from pyfence import _programs, _server, migrate

P = ParamSpec("P")
T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]

DEADLINE = 20.0  # seconds until a wait for the server is a failure
TEMPLATE = "fence_template"
SUPERUSER = _server.SUPERUSER

#: Every login of a test, and what it is.
ROLES = {
    "fence_owner": "owns the databases and the schema fence; no superuser",
    "app_owner": "owns the application's tables, may administer pyfence",
    "app": "the application: DML on the tables, client of pyfence",
    "outsider": "a legacy job: DML on the tables, no right at all in the schema fence",
    "monitor": "reads the views of the schema fence",
}
#: The kinds of right in the schema fence that each role has.
FENCE_RIGHTS = {"app_owner": ("admin", "client"), "app": ("client",), "monitor": ("monitor",)}


class Postgresql(testing.postgresql.Postgresql):  # type: ignore[misc]
    """testing.postgresql over the programs, the account and the folder that `pyfence demo` uses."""

    SETTINGS: Mapping[str, str | int | bool] = {
        "listen_addresses": _server.HOST,
        "fsync": False,
        "full_page_writes": False,
        "max_connections": 100,
        "max_prepared_transactions": 10,
        "wal_level": "logical",
        "deadlock_timeout": "250ms",
        "lc_messages": "C",
    }

    child_process: subprocess.Popen[bytes] | None

    def __init__(self, programs: _programs.Programs, workspace: _programs.Workspace) -> None:
        self.programs = programs
        self.workspace = workspace
        super().__init__(
            base_dir=str(workspace.path), initdb=programs.path("initdb"), postgres=programs.path("postgres")
        )

    @classmethod
    def launch(cls) -> Self:
        """Make a cluster and start it; whoever called stops it."""
        programs = _programs.Programs()
        return cls(programs, _programs.Workspace(_programs.choose_parent(programs.account)))

    def setup(self) -> None:
        for name in self.subdirectories:
            self.workspace.folder(name, self.programs.account)
        super().setup()

    def initialize_database(self) -> None:
        arguments = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        self.programs.run("initdb", "-D", self.get_data_directory(), *arguments)

    def start(self) -> None:
        if self.child_process is not None:
            return
        for attempt in itertools.count(1):
            self.settings["port"] = _server.free_port()
            with open(f"{self.base_dir}/{self.name}.log", "wb") as log:
                self.child_process = self.programs.start(
                    "postgres", self.get_server_commandline()[1:], log=log, lock=self.workspace.lock
                )
            try:
                self.wait_booting()
                break
            except RuntimeError as error:
                if attempt == 5 or "Address already in use" not in str(error):
                    self.stop()
                    raise
        self.poststart()

    @property
    def socket_folder(self) -> Path:
        return self.workspace.path / "tmp"

    def get_server_commandline(self) -> list[str]:
        folder = ["-D", self.get_data_directory(), "-k", str(self.socket_folder)]
        settings = {**self.SETTINGS, "port": self.settings["port"]}
        return [self.postgres, *folder, *_server.setting_arguments(settings)]

    def is_server_available(self) -> bool:
        process = self.child_process
        return process is not None and _server.is_ready(Path(self.get_data_directory()), process.pid)

    def cleanup(self) -> None:
        super().cleanup()
        if self.child_process is None:
            self.workspace.close()
            self.programs.close()


class Cluster:
    """The running server, its roles and, from the first test that wants it, its migrated template."""

    def __init__(self, server: Postgresql) -> None:
        self.server = server
        self._names = (f"test_{number}" for number in itertools.count(1))
        self.admin: Connection = psycopg.connect(self.url("postgres", SUPERUSER), autocommit=True)
        self.version = self.admin.info.server_version // 10000
        for role in ROLES:
            self.admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        self._template: Future[None] | None = None

    def url(self, database: str, user: str) -> str:
        """The libpq URL of a database for a role; every role is trusted."""
        url: str = self.server.url(database=database, user=user)
        return url

    def create_database(self, *, empty: bool = False) -> str:
        """A new database, a copy of the migrated template (about 20 ms) or, with `empty`, without pyfence."""
        if self._template is None and not empty:
            self._template = Future()
            try:
                self._make_template()
                self._template.set_result(None)
            except Exception as error:
                self._template.set_exception(error)
        name = next(self._names)
        if empty:
            self._create(name)
            self._let_the_application_in(name)
        else:
            assert self._template is not None
            self._template.result()  # a template that failed once fails every test, at once
            self._create(name, template=TEMPLATE)
            edit_authority(self.url(name, "fence_owner"), "database_oid = fence._current_database()::oid")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it. Waiting for the backends here is faster than DROP's own wait."""
        for (gid,) in self.admin.execute("select gid from pg_prepared_xacts where database = %s", (name,)).fetchall():
            with psycopg.connect(self.url(name, SUPERUSER), autocommit=True) as connection:
                connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
        here = "from pg_stat_activity where datname = %s and backend_type = 'client backend'"
        self.admin.execute(f"select pg_terminate_backend(pid) {here}", (name,))

        def alone() -> bool:
            return not self.admin.execute(f"select {here}", (name,)).fetchall()

        wait_until(alone, f"every backend of {name} has ended")
        self.admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def close(self) -> None:
        """Stop the server."""
        self.admin.close()
        self.server.stop()

    def _make_template(self) -> None:
        self._create(TEMPLATE)
        self._let_the_application_in(TEMPLATE)
        install(self.url(TEMPLATE, "fence_owner"))
        self.admin.execute(f"alter database {TEMPLATE} is_template true allow_connections false")

    def _create(self, name: str, *, template: str = "template1") -> None:
        # Copying files is the quicker way here, and the only one before 15.
        copying = sql.SQL("strategy file_copy" if self.version >= 15 else "")
        statement = sql.SQL("create database {} owner fence_owner template {} {}")
        self.admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template), copying))

    def _let_the_application_in(self, database: str) -> None:
        with psycopg.connect(self.url(database, SUPERUSER), autocommit=True) as connection:
            connection.execute("grant create, usage on schema public to app_owner")
            for kind, rights in (
                ("tables", "select, insert, update, delete, truncate"),
                ("sequences", "usage, select, update"),
            ):
                connection.execute(
                    f"alter default privileges for role app_owner grant {rights} on {kind} to app, outsider"
                )


def install(url: str) -> None:
    """Migrate a database to the newest revision and give the tests' roles their rights; `url` is fence_owner's."""
    migrate.up(url)
    with psycopg.connect(url, autocommit=True) as connection:
        for role, kinds in FENCE_RIGHTS.items():
            for kind in kinds:
                grants = connection.execute("select fence._role_grants(%s::regrole, %s)", (role, kind)).fetchall()
                for (statement,) in grants:
                    connection.execute(statement)


def edit_authority(url: str, change: str) -> None:
    """Change the authority's row and keep its seal, as nothing in the fence does. `url` is fence_owner's."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"begin; update fence._authority set {change}; select fence._seal(); commit")


class Database:
    """One test's database: connections that are closed, threads that are joined, and then nothing."""

    def __init__(self, cluster: Cluster, *, empty: bool = False) -> None:
        self.cluster = cluster
        self.name = cluster.create_database(empty=empty)
        self._connections: list[Connection] = []
        self._by_user: dict[str, Connection] = {}
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix=self.name)

    def url(self, user: str = "app") -> str:
        """The libpq URL for a role, with the server's own search_path."""
        return self.cluster.url(self.name, user)

    def connect(
        self,
        user: str = "app",
        autocommit: bool = False,
        *,
        isolation: psycopg.IsolationLevel | None = None,
        search_path: str = "",
        options: str = "",
        **kwargs: Any,
    ) -> Connection:
        """A connection that is closed when the test ends. The search_path is empty: names are written in full."""
        kwargs.setdefault("host", str(self.cluster.server.socket_folder))  # two thirds of what TCP costs
        connection: Connection = psycopg.connect(
            self.url(user), autocommit=autocommit, options=f"-c search_path={search_path} {options}", **kwargs
        )
        connection.isolation_level = isolation
        self._connections.append(connection)
        return connection

    def execute(
        self,
        statement: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        user: str = "app_owner",
    ) -> list[TupleRow]:
        """Run one statement, committed, as a role; its rows ([] if it returns none)."""
        connection = self._by_user.get(user)
        if connection is None or connection.closed:
            connection = self._by_user[user] = self.connect(user, autocommit=True)
        cursor = connection.execute(statement, params)
        returns_rows = cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
        return cursor.fetchall() if returns_rows else []  # a row may have no columns

    def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call that may wait; `.result(timeout)` collects it. Threads left waiting are ended with the test."""
        return self._threads.submit(call, *args, **kwargs)

    def start_blocked(
        self,
        connection: Connection,
        statement: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        by: Connection | int | None = None,
    ) -> Future[psycopg.Cursor[TupleRow]]:
        """Start a statement in a thread and return when it waits for a lock (of `by`)."""
        future = self.in_thread(connection.execute, statement, params)
        self.wait_until_blocked(connection, by=by, future=future)
        return future

    def wait_until_blocked(
        self,
        waiter: Connection | int,
        *,
        by: Connection | int | None = None,
        future: Future[Any] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        """Return when the backend waits for a lock, held by the backend `by` if given; fail if it does not.

        With `future`, the waiting call's, fail at once if it ended instead of waiting.
        """
        pid, blocker = _pid(waiter), None if by is None else _pid(by)

        def waits() -> bool:
            rows = self.cluster.admin.execute(
                "select wait_event_type, pg_blocking_pids(pid) from pg_stat_activity where pid = %s", (pid,)
            ).fetchall()
            if future is not None and future.done():
                pytest.fail(f"backend {pid} did not wait: {future.exception() or future.result()!r}")
            return bool(rows) and rows[0][0] == "Lock" and (blocker is None or blocker in rows[0][1])

        wait_until(waits, f"backend {pid} waits for a lock", deadline=deadline, state=self.activity)

    def activity(self) -> str:
        """What the backends of this database do, for a failure's message."""
        rows = self.cluster.admin.execute(
            """
            select pid, usename, state, wait_event_type, wait_event, pg_blocking_pids(pid), query
              from pg_stat_activity
             where datname = %s
             order by pid
            """,
            (self.name,),
        ).fetchall()
        return "\n".join(" | ".join(map(str, row)) for row in rows)

    def close(self) -> None:
        """End the backends first, so that no thread waits for a lock for ever; then the threads, then the database."""
        self.cluster.drop_database(self.name)
        self._threads.shutdown(wait=True, cancel_futures=True)
        for connection in self._connections:
            with suppress(psycopg.Error):
                connection.close()


def _pid(backend: Connection | int) -> int:
    return backend if isinstance(backend, int) else backend.info.backend_pid


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    deadline: float = DEADLINE,
    state: Callable[[], str] = lambda: "",
) -> None:
    """Return as soon as the condition holds; fail with `what` and the state after `deadline` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline} s: {what}\n{state()}")
        time.sleep(0.005)


@dataclass
class Refusal:
    """The error that `sqlstate()` caught: what the server said in `diag`."""

    error: BaseException | None = None
    diag: Any = None


@contextmanager
def sqlstate(code: str) -> Iterator[Refusal]:
    """Expect an error with this SQLSTATE: from psycopg, from SQLAlchemy around it, or from pyfence.

    Yields a Refusal that is filled when the block ends: `with sqlstate("LF001") as refused: ...; refused.diag.hint`.
    """
    refusal = Refusal()
    try:
        yield refusal
    except Exception as error:
        driver = driver_error(error)
        found = getattr(error, "sqlstate", None) or (driver.sqlstate if driver else None)
        if found != code:
            raise
        refusal.error, refusal.diag = error, driver.diag if driver else None
    else:
        pytest.fail(f"no error, expected SQLSTATE {code}")


def driver_error(error: BaseException) -> psycopg.Error | None:
    """The psycopg error inside another one, or itself."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, psycopg.Error):
            return seen
        original = getattr(seen, "orig", None)
        seen = original if isinstance(original, BaseException) else seen.__cause__
    return None


def level(isolation: psycopg.IsolationLevel) -> str:
    """The level as SQL writes it, such as `repeatable read`."""
    return isolation.name.lower().replace("_", " ")


def worker() -> str:
    """This process's name among pytest's workers, '' without any."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")
