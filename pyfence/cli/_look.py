"""What `pyfence status` looks at, and how it is shown: read in one transaction, printed section by section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import DictRow

from pyfence._clock import now
from pyfence.cli import _queries
from pyfence.cli._database import Session
from pyfence.cli._leases import IN_FLIGHT_COLUMNS, LEASE_COLUMNS, limited, unknown_resource
from pyfence.cli._output import Column, Output, Row, local_time
from pyfence.cli._tables import GUARD_COLUMNS, guard_rows

MOST = 100  # leases shown, and transactions; `leases` lists all leases
_BAR = 10  # characters
_AUDIT_EVERY = 30.0  # seconds between two audits of one `status --watch`, and at least ten times as long as one takes
_FINDINGS = 5  # errors named; `doctor` lists them all
_STATE_STYLES = {"issuing": "green", "standby": "dim", "pending": "yellow", "quarantined": "bold red"}


def bar(share: float) -> str:
    """How much is left of 1, drawn; what is not empty shows at least one block."""
    full = min(_BAR, max(int(share * _BAR + 0.5), 1 if share > 0 else 0))
    return "█" * full + "░" * (_BAR - full)


def _bar_style(text: str) -> str | None:
    return None if text == "-" else ("green", "yellow", "red")[(text.count("█") < 5) + (text.count("█") < 2)]


_BAR_COLUMN = Column("", "share_left", bar, drawn=True, style=_bar_style)
_LEASE_COLUMNS = (*LEASE_COLUMNS[:5], _BAR_COLUMN, *LEASE_COLUMNS[5:])
_REFUSAL_COLUMNS = (
    Column("table", "protected_table", folds=True),
    Column("code", "code"),
    Column("times", "count", right=True),
    Column("roles", "roles", right=True),
    Column("last", "last_at", local_time),
)
_COVERAGE_COLUMNS = (
    Column("schema", "schema_name", folds=True),
    Column("tables", "tables", right=True),
    Column("enforced", "enforced", right=True),
    Column("observed", "observed", right=True),
    Column("not armed", "not_armed", right=True, style=lambda text: None if text == "0" else "bold red"),
    Column("unprotected", "unprotected", right=True),
)


@dataclass
class Audits:
    """The doctor's findings, asked for again only so often; `wanted` False: not at all."""

    wanted: bool = True
    _findings: list[DictRow] | None = None
    _next: float = field(default=0.0)

    def findings(self, database: Session) -> list[DictRow] | None:
        """The newest findings that are not too old; None where nobody wants them."""
        begun = now()
        if self.wanted and begun >= self._next:
            self._findings = database.rows(_queries.AUDIT)
            self._next = now() + max(_AUDIT_EVERY, 10 * (now() - begun))
        return self._findings


@dataclass(frozen=True)
class Look:
    """Everything that one look sees; `document` is what --json prints."""

    document: Mapping[str, Any]

    def print(self, output: Output) -> None:
        """Write it as text: what is wrong first, then who holds what, then the tables."""
        _print_head(output, self.document)
        for section in _SECTIONS:
            output.line("")
            section(output, self.document)


def look(database: Session, resource: str | None, audits: Audits) -> Look:
    """Take one look at a database, or at one resource there. Raises `Failed` for one that never had a lease."""
    states = None if resource is not None else ("held", "expired", "superseded lineage")
    found = database.rows(_queries.leases(resource=resource, states=states, limit=MOST + 1))
    if resource is not None and not found:
        raise unknown_resource(resource)
    leases, truncated = limited(found, MOST)
    (authority,) = database.rows(_queries.AUTHORITY)
    guards = database.rows(_queries.GUARDS)
    findings = audits.findings(database)
    return Look(
        {
            "schema_version": str(database.value(_queries.SCHEMA_VERSION)),
            "authority": {name: authority[name] for name in ("state", "why", "remedy", "lineage", "floor", "floor_at")},
            "lease_counts": {row["state"]: row["leases"] for row in database.rows(_queries.LEASE_COUNTS)},
            "leases": leases,
            "truncated": truncated,
            "in_flight": database.rows(_queries.in_flight(resource=resource, limit=MOST)),
            "violations_last_hour": database.rows(_queries.REFUSALS),
            "protected_tables": guards,
            "coverage": _coverage(database.rows(_queries.TABLE_COUNTS), guards),
            "doctor": None if findings is None else _summary(findings),
        }
    )


def _coverage(tables: list[DictRow], guards: list[DictRow]) -> list[dict[str, Any]]:
    """By schema with a protected table: how many tables there are, and how many of them are guarded how."""
    rows: list[dict[str, Any]] = []
    for row in tables:
        here = [guard for guard in guards if guard["schema_name"] == row["schema_name"] and guard["table"] is not None]
        rows.append(
            {
                **row,
                "enforced": sum(guard["mode"] == "enforce" for guard in here),
                "observed": sum(guard["mode"] == "observe" for guard in here),
                "not_armed": sum(guard["armed"] is False for guard in here),
                "unprotected": max(0, row["tables"] - len(here)),
            }
        )
    return rows


def _summary(findings: list[DictRow]) -> dict[str, Any]:
    counts = {name: sum(row["severity"] == name for row in findings) for name in ("error", "warning", "info")}
    return {"counts": counts, "errors": [row for row in findings if row["severity"] == "error"]}


# -- as text ----------------------------------------------------------------------------------------------------------


def _print_head(output: Output, seen: Mapping[str, Any]) -> None:
    output.line(f"schema version: {seen['schema_version']}")
    authority = seen["authority"]
    words = f"authority: {authority['state']}, lineage {authority['lineage']} since {local_time(authority['floor_at'])}"
    output.line(words, style=_STATE_STYLES.get(authority["state"]))
    if authority["why"]:
        output.line(f"  {authority['why']}")
    if authority["remedy"]:
        output.line(f"  to do: {authority['remedy']}")
    if seen["doctor"] is None:
        output.line("doctor: not asked")
        return
    counts, errors = seen["doctor"]["counts"], seen["doctor"]["errors"]
    found = ", ".join(f"{severity}: {count}" for severity, count in counts.items() if count)
    style = "bold red" if counts["error"] else "yellow" if counts["warning"] else "green"
    output.line(f"doctor: {found or 'no findings'}", style=style)
    for row in errors[:_FINDINGS]:
        output.line(f"  {row['object']} [{row['code']}] {row['detail']}")
    if len(errors) > _FINDINGS:
        output.line(f"  and {len(errors) - _FINDINGS} more: pyfence doctor")


def _print_leases(output: Output, seen: Mapping[str, Any]) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in seen["lease_counts"].items()) or "none"
    if seen["leases"]:
        output.table(_LEASE_COLUMNS, [_with_share(row) for row in seen["leases"]], title=f"leases: {counts}")
    else:
        output.line(f"leases: {counts}")


def _with_share(lease: DictRow) -> Row:
    left = lease["seconds_left"]
    return {**lease, "share_left": None if left is None else left / max(lease["ttl_seconds"], left, 1e-6)}


def _print_in_flight(output: Output, seen: Mapping[str, Any]) -> None:
    rows = seen["in_flight"]
    if not rows:
        output.line("in flight: none")
        return
    output.table(IN_FLIGHT_COLUMNS, rows, title=f"in flight, which a takeover waits for: {len(rows)}")


def _print_violations(output: Output, seen: Mapping[str, Any]) -> None:
    rows = seen["violations_last_hour"]
    if not rows:
        output.line("let pass in the last hour: nothing")
        return
    output.table(_REFUSAL_COLUMNS, rows, title="let pass in the last hour, to be refused under enforce:")


def _print_tables(output: Output, seen: Mapping[str, Any]) -> None:
    guards = seen["protected_tables"]
    if not guards:
        output.line("protected tables: none")
        return
    output.table(GUARD_COLUMNS, guard_rows(guards), title=f"protected tables: {len(guards)}")
    output.line("")
    output.table(_COVERAGE_COLUMNS, seen["coverage"], title="coverage")
    output.line("")
    output.line("What enforced tables refused stands in the server log alone: a refused transaction leaves no row.")


_SECTIONS: tuple[Callable[[Output, Mapping[str, Any]], None], ...] = (
    _print_leases,
    _print_in_flight,
    _print_violations,
    _print_tables,
)
