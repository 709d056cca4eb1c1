"""One player of the demo, in a process of its own: `python -m pyfence.demo._player`.

It does one request after the other, a line of JSON each on stdin, and answers each with a line on stdout. Whoever plays
the story may put several requests into the pipe at once: a player that is frozen finds them when it wakes up, and goes
on by itself, as a program does that has read half of its input.

The first request names the database, so that no password is in the arguments or the environment of a process.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from typing import Any

import psycopg
from psycopg import sql

import pyfence
from pyfence.demo import _sql

Answer = dict[str, Any]


class Player:
    """A worker that takes leases, or a legacy job that knows none. Each public method is a request."""

    def __init__(self, url: str, name: str, schema: str) -> None:
        self._fence = pyfence.Fence(url)
        self._plain = psycopg.connect(url, autocommit=True)
        self._name = name
        self._schema = schema
        self._lease: pyfence.Lease | None = None
        self._figures: list[str] = []

    def acquire(self, resource: str, ttl: float, wait: float) -> Answer:
        """Takes a lease, once: it does not renew itself. `ttl`, `wait`: seconds."""
        self._lease = self._fence.acquire(resource, ttl=ttl, owner=self._name, wait=wait)
        self._figures = []
        return {"token": self._lease.token}

    def collect(self, figure: str) -> Answer:
        """A part of the work between taking the lease and writing."""
        self._figures.append(figure)
        return {"figures": len(self._figures)}

    def publish(self, row: int) -> Answer:
        """Writes the report under the lease, in one round trip."""
        changes = {"body": self._body(), "written_by": self._name}
        return {"rows": self._held().fenced_update((self._schema, "report"), {"id": row}, changes)}

    def publish_naively(self, row: int) -> Answer:
        """Writes the report with its token to the table that knows the highest token it has seen, and nothing else."""
        values = (self._body(), self._name, self._held().token, row)
        return self._update(_sql.NAIVE_UPDATE, "report_naive", values)

    def write_unaware(self, row: int) -> Answer:
        """Writes the report as a program does that has never heard of leases."""
        return self._update(_sql.LEGACY_UPDATE, "report", (self._body(), self._name, row))

    def write_forged(self, row: int, resource: str, token: int) -> Answer:
        """Writes the report with a token and a secret that nobody has granted."""
        with self._plain.transaction():
            self._plain.execute(_sql.FORGED_PRESENT, (resource, token, "0" * 32))
            return self.write_unaware(row)

    def release(self) -> Answer:
        """Gives the lease back."""
        return {"released": self._held().release()}

    def _update(self, statement: str, table: str, values: tuple[Any, ...]) -> Answer:
        query = sql.SQL(statement).format(table=sql.Identifier(self._schema, table))
        return {"rows": self._plain.execute(query, values).rowcount}

    def _held(self) -> pyfence.Lease:
        if self._lease is None:
            raise RuntimeError(f"{self._name} holds no lease")
        return self._lease

    def _body(self) -> str:
        return ", ".join([f"report of {self._name}", *self._figures])


def answer(player: Player, request: dict[str, Any]) -> Answer:
    """Do one request; a refusal by the database is an answer, everything else an error."""
    verb = request.pop("do")
    try:
        done: Answer = getattr(player, verb)(**request)
        return done
    except pyfence.LeaseHeld as held:
        return {**_refusal(held), "owner": held.owner, "token": held.token}
    except pyfence.FenceError as refused:
        return _refusal(refused)
    except psycopg.Error as failed:
        diag = failed.diag
        return {
            "code": failed.sqlstate or "none",
            "message": diag.message_primary or str(failed),
            "detail": diag.message_detail,
            "hint": diag.message_hint,
        }


def _refusal(error: pyfence.FenceError) -> Answer:
    return {"code": error.sqlstate or "none", "message": error.message, "detail": error.detail, "hint": error.hint}


def main() -> None:
    """Answer requests until stdin ends, which it also does when the process that plays the story dies."""
    logging.getLogger("pyfence").setLevel(logging.ERROR)  # that a lease is lost is the story, not news
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    player = Player(**json.loads(requests.get()))
    _reply({"ready": True})
    while True:
        _reply(answer(player, json.loads(requests.get())))


def _read(requests: queue.SimpleQueue[str]) -> None:
    """In a thread of its own, so that the end of stdin ends us at once, also in the middle of waiting for a lease."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _reply(reply: Answer) -> None:
    print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
