"""`pyfence protect --all`: a plan for every table of a schema, shown, then carried out as a whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from pyfence.cli import _queries
from pyfence.cli._database import Hints, Session, session
from pyfence.cli._exit_codes import ExitCode
from pyfence.cli._failures import Failed, Failure
from pyfence.cli._output import Column, Output, say
from pyfence.cli._settings import Settings

_MANY_LOCKS = "53200"
_STYLES = {"protect": "green", "change": "yellow", "keep": "dim", "cannot": "bold red"}
_COLUMNS = (
    Column("table", "table", folds=True),
    Column("action", "action", style=_STYLES.get),
    Column("resource", "resource", folds=True),
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which tables: those of a schema, less some, with a template for all and for some one of their own."""

    schema: str
    template: str
    own: Sequence[tuple[str, str]] = ()
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with one table.

    Attributes:
        action: 'protect', 'change' (its guard is another, or not armed), 'keep', or 'cannot'.
        problem, remedy: why not, and what would help.
    """

    table: str
    action: str
    resource: str | None
    problem: str | None
    remedy: str | None


def protect_all(settings: Settings, scope: Scope, guard: _queries.Guard, *, yes: bool, hints: Hints) -> int:
    """Plan, show, ask unless `yes`, and apply what was shown in one transaction. The exit code."""
    with session(settings, hints=hints, timeout=None) as database:
        plan = _plan(database, scope, guard)
    output = Output(settings)
    to_do = [step for step in plan if step.action in ("protect", "change")]
    if any(step.action == "cannot" for step in plan):
        _show(output, plan, applied=False)
        say("nothing was changed: give those tables a template with --for, or leave them out with --except")
        return ExitCode.NO
    if to_do and not yes:
        _show(output, plan, applied=False)
        if settings.json or not (sys.stdin and sys.stdin.isatty()):
            say("nothing was changed; to carry it out: --yes")
            return ExitCode.OK
        if not click.confirm(f"Guard {len(to_do)} tables?", err=True):
            say("nothing was changed")
            return ExitCode.NO
    _apply(settings, scope, guard, plan, hints)
    if yes or not to_do:
        _show(output, plan, applied=True)
    say(f"guards made or changed: {len(to_do)}")
    return ExitCode.OK


def _plan(database: Session, scope: Scope, guard: _queries.Guard) -> list[Step]:
    """Raises `Failed` where there is no table to protect."""
    steps = []
    for row in database.rows(_queries.plan(scope.schema, scope.template, scope.own, scope.without)):
        present = row["guard"]
        action = "protect"
        if row["problem"]:
            action = "cannot"
        elif present is not None:
            wanted = {"template": row["resource"], "armed": True}
            wanted |= {name: value for name, value in asdict(guard).items() if value is not None}
            same = all((present[name] or "") == (value or "") for name, value in wanted.items())
            action = "keep" if same else "change"
        steps.append(Step(row["table"], action, row["resource"], row["problem"], row["remedy"]))
    if not steps:
        raise Failed(Failure("not_found", f"schema {scope.schema} has no table to protect"))
    return steps


def _apply(settings: Settings, scope: Scope, guard: _queries.Guard, plan: list[Step], hints: Hints) -> None:
    """All in one transaction. Raises `Failed` where the tables are not what the plan was made for any more."""
    more = {
        **hints,
        _MANY_LOCKS: "One transaction locks every table: raise max_locks_per_transaction, or leave tables out.",
    }
    with session(settings, hints=more, timeout=None) as database:
        if _plan(database, scope, guard) != plan:
            raise Failed(
                Failure("changed", "the tables have changed since the plan was made", None, "Look at the new plan.")
            )
        for step in plan:
            if step.action in ("protect", "change"):
                database.rows(_queries.protect(step.table, str(step.resource), guard))


def _show(output: Output, plan: list[Step], *, applied: bool) -> None:
    def print_text() -> None:
        output.table(_COLUMNS, [asdict(step) for step in plan])
        for step in plan:
            if step.problem:
                output.line("")
                output.line(f"{step.table}: {step.problem}")
                output.line(f"  remedy: {step.remedy}")

    output.document({"plan": [asdict(step) for step in plan], "applied": applied}, print_text)
