"""The command tree, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from pyfence.cli._authority import authority, confirm_lineage
from pyfence.cli._doctor import doctor, repair
from pyfence.cli._exit_codes import EXPLAINED, ExitCode, RunCode
from pyfence.cli._failures import Failure, OutputFailed, failure_of, redacted
from pyfence.cli._leases import history, leases, revoke
from pyfence.cli._migrate import migrate, uninstall
from pyfence.cli._output import say, tell_failure, write
from pyfence.cli._roles import role
from pyfence.cli._roll_out import exempt, prune, violations
from pyfence.cli._run import run as run_command
from pyfence.cli._settings import Settings, shared_options
from pyfence.cli._shows import bench, demo
from pyfence.cli._status import status
from pyfence.cli._tables import protect, set_mode, unprotect
from pyfence.cli._timeline import timeline

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        write(f"pyfence {version('pyfence-postgres')}\n")
        ctx.exit()


@click.group(context_settings=_CONTEXT, epilog=EXPLAINED)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@shared_options
def app() -> None:
    """Leases and fencing tokens that PostgreSQL itself enforces.

    Data goes to stdout, talk to stderr. The options below may stand before or after a command's name. Best keep a
    password out of the command line, which other users can see: put it into PYFENCE_DATABASE_URL, ~/.pgpass or a
    libpq service file.
    """


_GUARDS = (protect, set_mode, unprotect, violations, exempt, doctor, repair)
_LEASES = (status, leases, history, timeline, prune, revoke, authority, confirm_lineage)
for command in (demo, migrate, role, *_GUARDS, *_LEASES, run_command, bench, uninstall):
    app.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    settings = Settings()
    try:
        code = _run(given, settings)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OutputFailed, OSError) as exc:
        return _output_failed(exc)
    return code


def _run(given: list[str], settings: Settings) -> int:
    options = given[: given.index("--")] if "--" in given else given

    def tell(failure: Failure) -> int:
        # The command line may have been wrong before --json was reached.
        tell_failure(failure, as_json=settings.json or "--json" in options)
        return failure.exit_code

    try:
        result = app.main(given, prog_name="pyfence", standalone_mode=False, obj=settings)
        return result if isinstance(result, int) else ExitCode.OK
    except click.Abort:
        return tell(Failure("interrupted", "interrupted", exit_code=ExitCode.INTERRUPTED))
    except click.ClickException as exc:
        ctx = exc.ctx if isinstance(exc, click.UsageError) else None
        code = RunCode.USAGE if ctx is not None and ctx.command is run_command else ExitCode.USAGE
        if "--json" in options:
            return tell(Failure("usage", redacted(exc.format_message()), exit_code=code))
        text = io.StringIO()
        exc.show(text)
        click.echo(redacted(text.getvalue()), err=True, nl=False)
        return code
    except SystemExit as exc:  # what click and rich make of a broken pipe
        raise OutputFailed("its reader has gone") from BrokenPipeError(*exc.args)
    except OutputFailed:
        raise
    except Exception as exc:
        failure = failure_of(exc)
        if failure is None:
            failure = Failure(
                "defect",
                f"unexpected {type(exc).__name__}",
                redacted(str(exc)),
                None if settings.debug else "Please report it, with the traceback that --debug shows.",
                ExitCode.DEFECT,
            )
        if settings.debug:
            click.echo(redacted("".join(traceback.format_exception(exc))), err=True, nl=False)
        return tell(failure)


def _prepare_streams() -> None:
    """Make the standard streams safe: no socket may take their numbers, and no name may break their encoding."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _output_failed(exc: Exception) -> int:
    """A reader that has gone (`| head`) is told nothing, and nothing more is written, also not at exit."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
    cause = exc.__cause__ or exc
    if not isinstance(cause, BrokenPipeError):
        with suppress(OSError):
            say(f"error: the output could not be written: {exc}")
    return ExitCode.OUTPUT
