"""Processes that want one expired lease at the same moment."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import IO

import pytest
from guards.scene import acquire, expire
from harness import Database

_TAKER = """
import sys, psycopg
conn = psycopg.connect(sys.argv[1], autocommit=True)
print("ready", flush=True)
for line in sys.stdin:
    row = conn.execute("select granted, token from fence.acquire('report:1', '1 h')", prepare=True).fetchone()
    print(*row, flush=True)
"""


def streams(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@pytest.mark.parametrize("takeovers", [50, pytest.param(500, marks=pytest.mark.stress)])
def test_each_takeover_is_granted_once_and_to_a_higher_token(db: Database, takeovers: int) -> None:
    """Eight processes, each takeover in a round of its own, so that the order of the commits is that of the rounds."""
    newest = acquire(db, "report:1").token
    with ExitStack() as block:
        processes = [
            block.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _TAKER, db.url("app")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for _ in range(8)
        ]
        for process in processes:
            block.callback(process.kill)
            assert streams(process)[1].readline() == "ready\n"
        for _ in range(takeovers):
            expire(db, "report:1")
            for process in processes:
                streams(process)[0].write("go\n")
            answers = [streams(process)[1].readline().split() for process in processes]
            ((_, token),) = [answer for answer in answers if answer[0] == "True"]
            assert int(token) > newest
            newest = int(token)
    granted = db.execute("select token from fence.history where event = 'granted' order by id")
    tokens = [token for (token,) in granted]
    assert len(tokens) == takeovers + 1
    assert tokens == sorted(set(tokens))
