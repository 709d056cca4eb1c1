"""Somebody who does what a hint says, and knows nothing else about pyfence."""

from __future__ import annotations

import re
import shlex
from typing import Any

from cli.command import CommandLine
from guards.scene import Lease
from harness import Connection, Database

COMMAND = re.compile(r"\b((?:select|alter|drop|begin)\s[^;]*);")
PROGRAM = re.compile(r"\bpyfence [a-z][^;.]*")
PLACEHOLDER = re.compile(r"<([a-z ]+)>")


def commands(hint: str) -> list[str]:
    """The SQL of a hint, statement by statement; each ends with a semicolon there."""
    return COMMAND.findall(hint)


class Reader:
    """Runs the commands of a hint as a role. What acquire returned fills <token> and <secret>.

    `transaction` is where it writes: fence.present is run there, everything else in a transaction of its own.
    """

    def __init__(self, db: Database, lease: Lease | None = None, *, user: str = "app", **known: str) -> None:
        self.db = db
        self.user = user
        self.known = {name.replace("_", " "): value for name, value in known.items()}
        if lease is not None:
            self.remember(lease.token, lease.secret)
        self.transaction: Connection = db.connect(user)
        self.answers: list[Any] = []

    def remember(self, token: int, secret: str) -> None:
        self.known |= {"token": str(token), "secret": f"'{secret}'"}

    def follow(self, hint: str) -> list[Any]:
        """Do all of it; what the last command answered."""
        done = 0
        for line in PROGRAM.findall(hint):
            CommandLine(self.db.url("fence_owner"))(*shlex.split(line)[1:])
            done += 1
        for command in commands(hint):
            self.run(command)
            done += 1
        assert done, f"nothing to do in {hint!r}"
        return self.answers

    def run(self, command: str) -> None:
        statement = PLACEHOLDER.sub(lambda found: self.known[found[1]], command)
        if "fence.present(" in command:
            self.transaction.execute(statement)
            return
        self.answers = self.db.execute(statement, user=self.user)
        if "fence.acquire(" in command:
            ((granted, _, token, secret, *_),) = self.answers
            assert granted, f"{statement}: {self.answers}"
            self.remember(token, secret)
        elif "fence.resource_for(" in command:
            self.known["resource"] = "'" + self.answers[0][0].replace("'", "''") + "'"

    def write(self, statement: str) -> int:
        """The write that was refused, once more; how many rows it changed."""
        rows = self.transaction.execute(statement).rowcount
        self.transaction.commit()
        return rows
