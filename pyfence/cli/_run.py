"""`pyfence run`: a command that knows nothing of pyfence, under a lease."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace

import click
import psycopg
from psycopg.conninfo import make_conninfo

from pyfence import _statements
from pyfence._calls import execute
from pyfence._clock import now
from pyfence._state import LeaseState
from pyfence.cli import _queries
from pyfence.cli._child import ENDING, Bell, Child, prepared
from pyfence.cli._database import connection
from pyfence.cli._exit_codes import RUN_EXPLAINED, ExitCode, RunCode
from pyfence.cli._failures import Failed, Failure, failure_of
from pyfence.cli._output import say
from pyfence.cli._settings import Settings, seconds, shared_options, text
from pyfence.client import Fence
from pyfence.errors import LeaseHeld, LeaseLost, OutcomeUnknown, StaleToken
from pyfence.lease import Lease
from pyfence.types import default_owner

_LONGEST_NAP = 1.0  # seconds between two looks at the clock, which may have jumped over a suspension of the machine
_SHORTEST_NAP = 0.05  # seconds between two looks at a group that nobody tells us of
_AFTER_KILL = 5.0  # seconds until processes that even SIGKILL does not end are left alone

_AFTER_STOP = 2.0  # seconds that an answer may still take once a signal has ended the wait for a lease

# In the form of a claim and none: nothing is ever granted on the empty name.
_PROBE = ":0:0"


class _Stopped(Exception):
    """A signal that ends this process, before the command was started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _wait(value: str) -> float | None:
    """'forever' as None, else seconds; 0 for not at all."""
    return None if value == "forever" else 0.0 if value == "0" else seconds(value)


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=RUN_EXPLAINED,
    short_help="Run a command under a lease that it knows nothing of.",
)
@click.option("--resource", type=text, required=True, metavar="NAME", help="What to hold while the command runs.")
@click.option("--ttl", type=seconds, default=30.0, show_default=True, help="Seconds that the lease lasts unrenewed.")
@click.option(
    "--wait",
    type=_wait,
    default="0",
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for the lease, or 'forever'.",
)
@click.option("--owner", type=text, help="The lease's label. [default: host, process and command]")
@click.option(
    "--grace",
    type=seconds,
    help="Seconds between SIGTERM and SIGKILL when the lease is lost, at most half the ttl. "
    "[default: 5, or a third of the ttl]",
)
@click.option(
    "--once",
    type=text,
    metavar="KEY",
    help="Do nothing if a run of this name has succeeded before, such as the day of a nightly job.",
)
@click.option("--shell", is_flag=True, help="COMMAND is one text for /bin/sh -c.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@shared_options
@click.pass_obj
def run(
    settings: Settings,
    resource: str,
    ttl: float,
    wait: float | None,
    owner: str | None,
    grace: float | None,
    once: str | None,
    shell: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND while holding the lease of a resource, and let its libpq connections write under it.

    \b
    pyfence run --resource nightly -- psql -f nightly.sql

    The claim travels in the variable PGOPTIONS. The lease is renewed while the command runs and given back when its
    whole process group has ended. When the lease is lost, the group is ended before anybody else can have it.
    """
    if ttl < 1:
        raise click.UsageError(f"--ttl {ttl:g} is less than a second")
    grace = min(5.0, ttl / 3) if grace is None else grace
    if grace > ttl / 2:
        raise click.UsageError(f"--grace {grace:g} is more than half the ttl of {ttl:g} seconds")
    if shell:
        if len(command) != 1:
            raise click.UsageError("--shell takes one COMMAND: put it into quotes")
        command = ("/bin/sh", "-c", *command)
    _check_command(command[0])
    conninfo = make_conninfo(**settings.connect_arguments())
    label = owner or f"{default_owner()} {os.path.basename(command[0])}"
    _let_the_client_talk()
    # The processes first: forking is for a program without threads.
    with prepared(command) as child:
        bell = Bell()
        try:
            with Fence(conninfo, timeout=settings.timeout or 10.0) as fence:
                block = fence.lease(resource, ttl, label, wait, on_lost=lambda _: bell.ring())
                with _entered(block, bell, fence, before=lambda: _probe(settings)) as lease:
                    if once is not None and _finished(fence, lease, once, record=False):
                        _tell(f"run {once!r} of {resource!r} has succeeded before")
                        return RunCode.DONE_BEFORE
                    child.start(lease.environ())
                    ended = _supervise(child, bell, lease._state, grace=grace, margin=min(1.0, ttl / 20))
                    if once is not None and child.status == 0 and not ended:
                        _finished(fence, lease, once, record=True)
        except _Stopped as stopped:
            return 128 + stopped.number
        except LeaseLost as exc:
            _tell(f"error: {exc.message}", f"hint: {exc.hint}")
            return RunCode.LOST
        except Exception as exc:
            failure = failure_of(exc)
            if failure is None:
                raise
            if child.status is not None:
                _tell(f"error: the command has succeeded, but that is not recorded: {failure.message} [{failure.code}]")
                return _code(exc, failure, wait)
            raise Failed(replace(failure, exit_code=_code(exc, failure, wait))) from exc
        finally:
            bell.close()
    if ended or child.status is None:
        _tell("error: the lease could not be renewed in time; the command was ended before it ran out")
        return RunCode.LOST
    return child.status


@contextmanager
def _entered(
    block: AbstractContextManager[Lease], bell: Bell, fence: Fence, *, before: Callable[[], None]
) -> Iterator[Lease]:
    """The block of a lease, entered in another thread, so that a signal that ends this process finds it listening.

    An exception out of a signal's handler would be no way: it may come in the midst of the driver's work.

    Raises:
        _Stopped: by a signal before the block was entered. A lease that is granted all the same is given back.
    """
    entering: Future[Lease] = Future()

    def enter() -> None:
        try:
            before()
            entering.set_result(block.__enter__())
        except BaseException as exc:
            entering.set_exception(exc)
        bell.ring()

    thread = threading.Thread(target=enter, name="pyfence-acquire", daemon=True)
    thread.start()
    stopped: list[int] = []
    while not stopped and not entering.done():
        stopped = [number for number in bell.wait(_LONGEST_NAP) if number in ENDING]
    bell.listen()
    stopped += [number for number in bell.wait(0) if number in ENDING]
    if stopped:
        fence._closing.set()
        thread.join(_AFTER_STOP)
        if entering.done() and entering.exception() is None:
            block.__exit__(None, None, None)
        raise _Stopped(stopped[0])
    lease = entering.result()
    with ExitStack() as stack:
        stack.push(block)
        yield lease


def _supervise(child: Child, bell: Bell, lease: LeaseState, *, grace: float, margin: float) -> bool:
    """Returns when the command's group is gone. True: it was ended, so that nothing of it runs without the lease.

    SIGTERM at the loss, or `grace` before the lease's local deadline if it is not renewed by then; SIGKILL `margin`
    before that deadline at the latest.
    """
    kill_at: float | None = None
    signals: list[int] = []
    while True:
        child.look()
        if child.gone:
            return kill_at is not None
        time = now()
        # Before any signal is passed on: whoever was stopped for too long must not be continued.
        if kill_at is None and (lease.reason is not None or time >= lease.deadline - margin - grace):
            kill_at = min(time + grace, lease.deadline - margin)
            if time < kill_at:
                child.terminate()
                _tell(f"pyfence: ending the command: SIGTERM, and SIGKILL in {kill_at - time:.1f} s")
        if kill_at is not None and time >= kill_at:
            child.kill()
            if time > kill_at + _AFTER_KILL:
                _tell("pyfence: there are processes that could not be ended; the database refuses their writes")
                return True
        if kill_at is None:
            for number in signals:
                child.pass_on(number)
        nap = _LONGEST_NAP if child.status is None and kill_at is None else _SHORTEST_NAP
        signals = bell.wait(min(nap, max(0.0, lease.deadline - margin - grace - time)) if kill_at is None else nap)


def _finished(fence: Fence, lease: Lease, run: str, *, record: bool) -> bool:
    """Whether a run of that name has succeeded before, or records that it has now. Asks as long as the lease lasts."""
    backend = fence._backend
    statement = _statements.finished(lease.claim, run, record=record)
    while True:
        try:
            ((answer,),) = backend.calls.run(statement, timeout=backend.timeout, resource=lease.resource)
        except (psycopg.OperationalError, OutcomeUnknown):
            if lease.lost.wait(_LONGEST_NAP):
                raise
        else:
            return bool(answer)


def _check_command(name: str) -> None:
    """Tells what a shell would, before anybody waits for a lease."""
    if shutil.which(name) is not None:
        return
    if os.path.dirname(name) and os.path.exists(name):
        raise Failed(Failure("not_executable", f"{name} cannot be executed", exit_code=RunCode.NOT_EXECUTABLE))
    raise Failed(
        Failure(
            "not_found",
            f"{name}: command not found",
            hint="For shell syntax: --shell 'COMMAND'." if " " in name else None,
            exit_code=RunCode.NOT_FOUND,
        )
    )


def _probe(settings: Settings) -> None:
    """Finds out whether start-up options reach the server. A pooler may refuse them, or drop them without a word."""
    given = settings.connect_arguments().get("options") or os.environ.get("PGOPTIONS", "")
    hint = (
        "Let the command, and --database-url, connect to the server itself instead of the pooler; or let the job "
        "present its claim in the transaction (pyfence.present, fence.enter), which works through any pooler."
    )
    try:
        with connection(settings, options=f"{given} -c fence.claim={_PROBE}".lstrip()) as conn:
            if execute(conn, _queries.STARTUP_CLAIM).fetchone() == (_PROBE,):
                return
    except Failed as exc:
        if exc.failure.exit_code != ExitCode.UNREACHABLE:
            raise
        with connection(settings):
            pass
        raise Failed(
            Failure(
                "pooler",
                "the pooler between here and the server refuses start-up options",
                exc.failure.detail,
                hint,
                RunCode.REFUSED,
            )
        ) from exc
    raise Failed(
        Failure(
            "pooler",
            "the pooler between here and the server drops start-up options",
            "The claim in PGOPTIONS would not reach the server, and every write would be refused.",
            hint,
            RunCode.REFUSED,
        )
    )


def _code(exc: Exception, failure: Failure, wait: float | None) -> ExitCode | RunCode:
    if isinstance(exc, StaleToken):
        return RunCode.LOST
    if isinstance(exc, LeaseHeld):
        return RunCode.BUSY if wait == 0 else RunCode.WAITED
    if failure.exit_code == ExitCode.UNREACHABLE:
        return RunCode.UNREACHABLE
    return RunCode.REFUSED if failure.exit_code == ExitCode.NO else failure.exit_code


def _tell(*lines: str) -> None:
    """Talk that stops nothing, whatever has become of stderr."""
    for line in lines:
        with suppress(OSError):
            say(line)


def _let_the_client_talk() -> None:
    """Its warnings, such as failed renewals, go to stderr."""
    log = logging.getLogger("pyfence")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pyfence: %(message)s"))
        log.addHandler(handler)
