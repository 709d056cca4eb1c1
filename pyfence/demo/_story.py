"""The story: who does what, when, and what the database must answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyfence.demo import _sql
from pyfence.demo._processes import PlayerProcess
from pyfence.demo._record import Record
from pyfence.demo._signals import uninterrupted
from pyfence.demo._stage import Stage

SHORT = 2.0  # seconds that worker A's lease lasts
LONG = 30.0  # seconds that worker B's lasts: to the end of the story
FORGED_TOKEN = 2**53 - 1  # above every token that the authority will give out in this century

STALE, UNAWARE, FORGED = "LF001", "LF004", "LF006"
HELD = "LF012"


class Story:
    """Two acts on one stage, written to a record. Each player is a process."""

    def __init__(self, stage: Stage, record: Record) -> None:
        self.stage = stage
        self.record = record

    def play(self) -> None:
        """Both acts. Outcomes that differ from the promised ones are in the record; the players' processes are gone."""
        with self._players() as (a, b, legacy, forger):
            self.act_one(a, b, legacy, forger)
            self.record.act = 2
            self.act_two(a, b)

    def act_one(self, a: PlayerProcess, b: PlayerProcess, legacy: PlayerProcess, forger: PlayerProcess) -> None:
        """A worker wakes up after its lease has gone to somebody else; and two who never had one."""
        old = self._freeze_in_the_middle(a, row=1)
        a.send("publish", row=1)  # found when it wakes up
        new = self._take_over(a, b, row=1, old=old)
        self._write(b, "publishes its report", "publish", row=1, token=new, expected=None)
        b_wrote = self._only_b(1)

        self._wake(a)
        self._collected(a)
        self.record.write(
            a.name,
            "finishes its report and writes it with its old token",
            table="report",
            token=old,
            answer=a.answer(),
            expected=STALE,
        )
        self._write(
            legacy,
            "a program that knows no tokens runs its old UPDATE",
            "write_unaware",
            row=1,
            token=None,
            expected=UNAWARE,
        )
        self.record.write(
            forger.name,
            f"makes up the token {FORGED_TOKEN}, far above every other",
            table="report",
            token=FORGED_TOKEN,
            answer=forger.ask("write_forged", row=1, resource=self.stage.resource(1), token=FORGED_TOKEN),
            expected=FORGED,
        )
        self.record.check("report:1 is still worker B's, to the letter", self.stage.row("report", 1) == b_wrote)
        b.ask("collect", figure="corrected")
        self._write(b, "corrects its report: nobody has locked it out", "publish", row=1, token=new, expected=None)
        self.record.check(
            "report:1 is worker B's corrected report",
            self._only_b(1) != b_wrote and self._body(1).endswith("corrected"),
        )
        self._release(b)

    def act_two(self, a: PlayerProcess, b: PlayerProcess) -> None:
        """The boundary: the old token arrives after the new one was granted, and before it has written anything."""
        old = self._freeze_in_the_middle(a, row=2)
        a.send("publish_naively", row=2)
        a.send("publish", row=2)
        new = self._take_over(a, b, row=2, old=old)
        self.record.event(b.name, "has the newer token and has written nothing yet")
        self._wake(a)
        self._collected(a)
        self.record.write(
            a.name,
            "writes with its old token to the table that knows the highest token it has seen",
            table="report_naive",
            token=old,
            answer=a.answer(),
            expected=None,
        )
        self.record.event(
            "why",
            f"the newer token {new} has not reached that table yet: the highest it has seen is not above {old}. "
            "Whoever reads it now reads the work of a worker that has lost its lease",
        )
        self.record.check(
            "the naive table holds worker A's stale report", self.stage.row("report_naive", 2)[1] == a.name
        )
        self.record.write(
            a.name,
            "writes the same to the table that pyfence protects",
            table="report",
            token=old,
            answer=a.answer(),
            expected=STALE,
        )
        self.record.event(
            "why",
            "the guard does not ask what the table has seen: it asks, in the transaction of the write, who holds the "
            "lease, and locks the answer until the commit",
        )
        self.record.check("report:2 is untouched", self.stage.row("report", 2)[1] == "nobody")
        self._write(b, "publishes its report", "publish", row=2, token=new, expected=None)
        self._only_b(2)
        self._write(b, "publishes it there too", "publish_naively", row=2, token=new, expected=None)
        self._write(
            a, "tries there again: now, too late, it is noticed", "publish_naively", row=2, token=old,
            expected=_sql.NAIVE_CODE,
        )  # fmt: skip
        self._release(b)

    # -- steps that both acts share ---------------------------------------------------------------------------------

    def _freeze_in_the_middle(self, a: PlayerProcess, *, row: int) -> int:
        """A takes the lease, does half of its work, and is frozen; the other half lies in its pipe. Its token."""
        resource = self.stage.resource(row)
        answer = a.ask("acquire", resource=resource, ttl=SHORT, wait=LONG)
        if not self.record.check(f"worker A gets the lease on {resource}", "token" in answer):
            raise StoryOver(f"worker A did not get the lease: {answer.get('message')}")
        token = int(answer["token"])
        self.record.held(a.name, resource, token)
        self.record.event(a.name, f"takes the lease on {resource} for {SHORT:.0f} s: token {token}")
        a.ask("collect", figure="income 4711")
        self.record.event(a.name, "has half of its figures")
        a.freeze()
        a.send("collect", figure="costs 1742")
        self.record.event("the system", f"freezes worker A, process {a.pid}: SIGSTOP")
        return token

    def _take_over(self, a: PlayerProcess, b: PlayerProcess, *, row: int, old: int) -> int:
        """B is told that the lease is held, waits until it has run out, and gets it. Its token."""
        resource = self.stage.resource(row)
        answer = b.ask("acquire", resource=resource, ttl=LONG, wait=0)
        held = answer.get("code") == HELD and answer.get("owner") == a.name
        self.record.check("while A's lease lasts, B is told that A holds it", held)
        if held:
            self.record.event(b.name, f"asks for the lease: held by {answer['owner']}, token {answer['token']}")
        answer = b.ask("acquire", resource=resource, ttl=LONG, wait=LONG)
        if not self.record.check("worker B gets the lease once it has run out", "token" in answer):
            raise StoryOver(f"worker B did not get the lease: {answer.get('message')}")
        new = int(answer["token"])
        self.record.held(b.name, resource, new)
        self.record.event(b.name, f"asks until A's lease has run out, and gets it: token {new}")
        self.record.check(f"B's token {new} is above A's {old}", new > old)
        self.record.check("worker A was frozen all the while", a.is_silent())
        b.ask("collect", figure="income 4712")
        b.ask("collect", figure="costs 1742")
        return new

    def _wake(self, a: PlayerProcess) -> None:
        self.record.event("the system", "wakes worker A: SIGCONT. It does not know how long it was away")
        a.wake()

    def _collected(self, a: PlayerProcess) -> None:
        self.record.check("worker A goes on with what it finds in its pipe", a.answer().get("figures") == 2)

    def _write(
        self, who: PlayerProcess, what: str, verb: str, *, row: int, token: int | None, expected: str | None
    ) -> None:
        table = "report_naive" if verb == "publish_naively" else "report"
        self.record.write(who.name, what, table=table, token=token, answer=who.ask(verb, row=row), expected=expected)

    def _only_b(self, row: int) -> tuple[str, str]:
        found = self.stage.row("report", row)
        self.record.check(f"report:{row} holds worker B's report", found[1] == "worker B")
        return found

    def _body(self, row: int) -> str:
        return self.stage.row("report", row)[0]

    def _release(self, b: PlayerProcess) -> None:
        released = b.ask("release").get("released") is True
        if self.record.check("worker B was the holder to the end", released):
            self.record.event(b.name, "gives its lease back")

    @contextmanager
    def _players(self) -> Iterator[list[PlayerProcess]]:
        players: list[PlayerProcess] = []
        try:
            for name in ("worker A", "worker B", "legacy job", "forger"):
                url = self.stage.legacy_url if name == "legacy job" else self.stage.worker_url
                players.append(PlayerProcess(url, name, self.stage.schema))
            for player in players:
                player.ready()
            yield players
        finally:
            with uninterrupted():
                for player in players:
                    player.end()


class StoryOver(RuntimeError):
    """The story cannot go on: what the rest of it stands on has not happened."""
