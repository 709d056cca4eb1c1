"""What happened in the demo: events, leases, writes and checks, and whether each came out as promised. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """One step of the story. `at`: seconds since it began."""

    at: float
    act: int
    who: str
    text: str
    as_promised: bool = True


@dataclass(frozen=True)
class Write:
    """One attempted write. `code` is None where it was accepted; `expected` is what the demo promised."""

    at: float
    act: int
    who: str
    token: int | None
    table: str
    outcome: str
    code: str | None
    expected: str | None
    as_promised: bool


@dataclass(frozen=True)
class Held:
    """A token that was granted."""

    at: float
    act: int
    who: str
    resource: str
    token: int


@dataclass(frozen=True)
class Check:
    """A fact that has to hold for the demo to succeed."""

    text: str
    holds: bool


@dataclass
class Record:
    """The whole story, as it is written. `tell` is called with each event as it happens."""

    tell: Callable[[Event], object] = lambda event: None
    act: int = 1
    began: float = field(default_factory=time.monotonic)
    events: list[Event] = field(default_factory=list)
    leases: list[Held] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def restart(self) -> None:
        """The story begins now."""
        self.began = time.monotonic()

    def event(self, who: str, text: str, *, as_promised: bool = True) -> None:
        """A step of the story."""
        event = Event(self._now(), self.act, who, text, as_promised)
        self.events.append(event)
        self.tell(event)

    def check(self, text: str, holds: bool) -> bool:
        """A fact; told only if it does not hold."""
        self.checks.append(Check(text, holds))
        if not holds:
            self.event("the demo", f"expected, and not so: {text}", as_promised=False)
        return holds

    def held(self, who: str, resource: str, token: int) -> None:
        """A lease that was granted."""
        self.leases.append(Held(self._now(), self.act, who, resource, token))

    def write(
        self, who: str, what: str, *, table: str, token: int | None, answer: dict[str, Any], expected: str | None
    ) -> None:
        """An attempted write, the player's `answer` to it, and the SQLSTATE that was promised (None: accepted)."""
        code = answer.get("code")
        if code is not None:
            outcome, came = "refused", f"refused with {code}: {answer.get('message')}"
        elif answer.get("rows") == 1:
            outcome, came = "accepted", "accepted"
        else:
            outcome, came = f"{answer.get('rows')} rows", f"no error, and {answer.get('rows')} rows written"
        as_promised = code == expected and (expected is not None or outcome == "accepted")
        self.writes.append(
            Write(self._now(), self.act, who, token, table, outcome, code, expected or "accepted", as_promised)
        )
        if not as_promised:
            came += f" -- promised was: {expected or 'accepted'}"
        self.event(who, f"{what}: {came}", as_promised=as_promised)

    @property
    def differences(self) -> list[str]:
        """What did not come out as promised, in words; empty if everything did."""
        writes = [
            f"{write.who} writing to {write.table} with token {write.token or 'none'}: promised {write.expected}, "
            f"got {write.code or write.outcome}"
            for write in self.writes
            if not write.as_promised
        ]
        return writes + [check.text for check in self.checks if not check.holds]

    @property
    def ok(self) -> bool:
        """Whether everything came out as promised."""
        return bool(self.writes) and not self.differences

    def as_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return {
            "ok": self.ok,
            "differences": self.differences,
            "events": [asdict(event) for event in self.events],
            "leases": [asdict(held) for held in self.leases],
            "writes": [asdict(write) for write in self.writes],
            "checks": [asdict(check) for check in self.checks],
        }

    def _now(self) -> float:
        return round(time.monotonic() - self.began, 3)
