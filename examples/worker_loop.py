"""A plain worker: takes jobs one by one; any number of it may run.

    DATABASE_URL=postgresql://... python worker_loop.py        until SIGTERM
    DATABASE_URL=postgresql://... python worker_loop.py --once until there is nothing left to do

The same goes into a Celery task: the body of `work` is the task, and its `acks_late` redelivery is harmless.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import psycopg

import pyfence

stop = threading.Event()


TODO = "select id, day::text from job where id not in (select job from result) order by id limit 10"


def work(fence: pyfence.Fence, conn: psycopg.Connection, job: int, day: str) -> bool:
    """Does one job under its own lease. False: it is somebody else's, or was finished by somebody else meanwhile."""
    try:
        with fence.lease(f"job:{job}", ttl=30) as lease:
            if conn.execute("select from result where job = %s", (job,)).fetchone() is not None:
                return False
            row = conn.execute("select coalesce(sum(amount), 0) from sale where day = %s", (day,)).fetchone()
            with lease.transaction() as fenced:
                fenced.execute("insert into result (job, total) values (%s, %s)", (job, row and row[0]))
    except pyfence.LeaseHeld:
        return False
    except (pyfence.StaleToken, pyfence.LeaseExpired, pyfence.LeaseLost) as late:
        print(f"job {job}: refused: {late}", file=sys.stderr, flush=True)
        return False
    print(f"job {job}: done", flush=True)
    return True


def main(once: bool) -> int:
    """Works until told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    url = os.environ["DATABASE_URL"]
    with pyfence.Fence(url) as fence, psycopg.connect(url, autocommit=True) as conn:
        while not stop.is_set():
            # Looking needs no lease, and gives none.
            done = [work(fence, conn, job, day) for job, day in conn.execute(TODO).fetchall()]
            if not any(done):
                if once:
                    break
                stop.wait(1)
    return 0


if __name__ == "__main__":
    sys.exit(main("--once" in sys.argv[1:]))
