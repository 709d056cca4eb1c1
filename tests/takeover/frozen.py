"""A client in a process of its own that does one thing under a claim and then stands still (SIGSTOP)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from guards.scene import Lease
from harness import Database, wait_until

_PROGRAM = """
import sys, time
import psycopg

url, resource, token, secret, how = sys.stdin.read().splitlines()
conn = psycopg.connect(url)
if how in ("acquire", "renew"):
    call = "select fence.acquire('report:2', '1 s')" if how == "acquire" else "select fence.renew(%s, %s, %s, '1 s')"
    conn.execute(call, (resource, int(token), secret) if how == "renew" else None)
else:
    conn.execute("select fence.present(%s, %s, %s)", (resource, int(token), secret))
    if how == "copy":
        conn.pgconn.send_query(b"copy public.report from stdin")
    elif how == "unread":
        conn.pgconn.send_query(b"select repeat('x', 1000000) from generate_series(1, 1000)")
print(conn.info.backend_pid, flush=True)
time.sleep(600)
"""
#: What the server says of a backend whose client stands still.
STATES = {
    "idle": ("idle in transaction", "ClientRead"),
    "acquire": ("idle in transaction", "ClientRead"),
    "renew": ("idle in transaction", "ClientRead"),
    "copy": ("active", "ClientRead"),
    "unread": ("active", "ClientWrite"),
}


@contextmanager
def frozen(db: Database, lease: Lease, how: str) -> Iterator[int]:
    """The pid of the backend of a client that has presented `lease` and stands still: idle, in a COPY, with an unread
    result; or that has called acquire or renew and not committed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join([db.url("app"), lease.resource, str(lease.token), lease.secret, how]))
        process.stdin.close()
        pid = int(process.stdout.readline())
        statement = "select state, wait_event from pg_stat_activity where pid = %s"
        wait_until(
            lambda: db.cluster.admin.execute(statement, (pid,)).fetchall() == [STATES[how]], f"the client is {how}"
        )
        process.send_signal(signal.SIGSTOP)
        yield pid
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_there(db: Database, pid: int) -> bool:
    return bool(db.cluster.admin.execute("select from pg_stat_activity where pid = %s", (pid,)).fetchall())
