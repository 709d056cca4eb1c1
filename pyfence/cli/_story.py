"""From the recorded events of one resource to its story: who held it when, and what ended that. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyfence.cli._output import duration, printable

#: How each kind of moment is called on the page, in the order of the chart's rows.
KINDS = {
    "takeover": "takeover",
    "revoked": "revoked or ended by an administrator",
    "refused": "let pass, to be refused under enforce",
    "accepted": "last accepted write (once, sequenced)",
    "lineage": "change of lineage, floor or server",
    "guard": "change of a guard",
    "other": "other",
}
_LINEAGE = ("lineage", "floor", "restart")
_GUARD = ("protected", "guard changed", "unprotected", "guard repaired", "exempted", "exemption ended")


@dataclass(slots=True)
class Span:
    """A lease from its grant to its end.

    Attributes:
        end: None while nothing has ended it.
        ending: in words: released, expired, revoked by ..., taken over, over at commit.
    """

    id: str
    token: int
    owner: str
    start: datetime
    end: datetime | None = None
    ending: str = "open"


@dataclass(frozen=True, slots=True)
class Moment:
    """One event, as a row of the table; those of a `kind` are drawn, too."""

    id: str
    at: datetime
    event: str
    kind: str | None
    token: int | None
    owner: str | None
    actor: str
    detail: str


@dataclass(slots=True)
class Story:
    """Everything recorded about one resource in a stretch of time, oldest first."""

    resource: str
    spans: list[Span] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """What --json prints."""
        spans = [
            {name: getattr(span, name) for name in ("token", "owner", "start", "end", "ending")} for span in self.spans
        ]
        names = ("at", "event", "kind", "token", "owner", "actor", "detail")
        return {
            "resource": self.resource,
            "spans": spans,
            "events": [{name: getattr(moment, name) for name in names} for moment in self.moments],
        }


def tell(
    resource: str,
    history: Iterable[Mapping[str, Any]],
    violations: Iterable[Mapping[str, Any]] = (),
    accepted: Iterable[Mapping[str, Any]] = (),
) -> Story:
    """Read the rows of the views, each oldest first: of the resource, and of no resource (lineage, guards)."""
    story = Story(resource)
    open_span: Span | None = None
    for row in history:
        event, kind, detail = row["event"], None, row["detail"] or {}
        if event == "granted":
            took = detail.get("took_over")
            if open_span is not None:
                kind = "takeover"
                _end(open_span, row["at"], _was_taken(open_span, took))
            elif story.spans and story.spans[-1].ending not in ("released", "over at commit"):
                kind = "takeover"
            open_span = Span(f"e{row['id']}", row["token"], row["owner"], row["at"])
            story.spans.append(open_span)
        elif event == "closed":
            reason = str(detail.get("reason"))
            if open_span is not None and open_span.token == row["token"]:
                _end(open_span, row["at"], reason)
                open_span = None
            kind = None if reason in ("released", "expired") else "revoked"
        elif event == "entered" and open_span is not None and open_span.token == row["token"]:
            _end(open_span, row["at"], "over at commit")
            open_span = None
        elif event == "evicted":
            kind = "revoked"
        elif event in _LINEAGE:
            kind = "lineage"
            if event == "lineage" and open_span is not None:
                _end(open_span, row["at"], "superseded by a new lineage")
                open_span = None
        elif event in _GUARD:
            kind = "guard"
        story.moments.append(
            Moment(f"e{row['id']}", row["at"], event, kind, row["token"], row["owner"], _actor(row), brief(detail))
        )
    for row in violations:
        words = f"{row['code']} on {row['protected_table']}" + (", exempt" if row["exempt"] else "")
        words += "" if row["resource"] else ", of a resource that was not looked at"
        story.moments.append(Moment(f"v{row['id']}", row["at"], "let pass", "refused", None, None, _actor(row), words))
    for number, row in enumerate(accepted):
        words = f"on {row['protected_table']}" + ("" if row["sequence"] is None else f", sequence {row['sequence']}")
        story.moments.append(
            Moment(
                f"a{number}",
                row["at"],
                "accepted",
                "accepted",
                row["token"],
                None,
                "",
                f"the last accepted write {words}",
            )
        )
    story.moments.sort(key=lambda moment: moment.at)
    return story


def _end(span: Span, at: datetime, ending: str) -> None:
    span.end, span.ending = max(at, span.start), ending


def _was_taken(span: Span, took: Mapping[str, Any] | None) -> str:
    """Why a lease that nobody had closed was over at the next grant."""
    return f"expired {took['expires_at']}, then taken over" if took and took.get("expires_at") else "taken over"


def _actor(row: Mapping[str, Any]) -> str:
    """Role, application and client address."""
    parts = [row["role"], row["application"] or None, row["client"] and f"from {row['client']}"]
    return ", ".join(str(part) for part in parts if part)


def brief(detail: Any) -> str:
    """An event's detail in words."""
    if not isinstance(detail, Mapping):
        return json.dumps(detail, ensure_ascii=False)
    if "table_name" in detail:
        return f"{detail.get('schema_name')}.{detail['table_name']} {detail.get('template')} {detail.get('mode')}"
    if "took_over" in detail and isinstance(took := detail["took_over"], Mapping):
        rest = {key: value for key, value in detail.items() if key != "took_over"}
        before = f"took over from {took.get('owner')} (token {took.get('token')}, until {took.get('expires_at')})"
        return " ".join([*(f"{key}={value}" for key, value in rest.items()), before])
    if set(detail) == {"reason", "expires_at"}:
        return f"{detail['reason']} (it ran until {detail['expires_at']})"
    return " ".join(f"{key}={value}" for key, value in detail.items() if value is not None)


def held(spans: Sequence[Span], now: datetime) -> dict[str, float]:
    """Seconds that each owner held the lease, in the order of their first grant."""
    seconds: dict[str, float] = {}
    for span in spans:
        seconds[span.owner] = seconds.get(span.owner, 0.0) + ((span.end or now) - span.start).total_seconds()
    return seconds


def sentence(span: Span, now: datetime) -> str:
    """A span in one line."""
    length = duration(max(0.0, ((span.end or now) - span.start).total_seconds()))
    return printable(f"{span.owner}, token {span.token}, {length}: {span.ending}")
