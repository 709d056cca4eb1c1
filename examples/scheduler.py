"""A scheduler of which several run, and one leads: the holder of the lease `scheduler`.

    DATABASE_URL=postgresql://... python scheduler.py

Every day that has sales and no tick yet gets one, and a job. A leader that is cut off or frozen does no harm: its next
tick is refused, and it stands as a candidate again. Ends with SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import psycopg

import pyfence

stop = threading.Event()


def lead(conn: psycopg.Connection, lease: pyfence.Lease) -> None:
    """Ticks until the lease is lost, or the end."""
    while not stop.is_set():
        lease.raise_if_lost()
        due = conn.execute(
            "select distinct day::text from sale where day::text not in (select day from tick)"
        ).fetchall()
        for (day,) in due:
            with lease.transaction() as fenced:
                fenced.execute("insert into tick (day) values (%s)", (day,))
                fenced.execute("insert into job (day) values (%s)", (day,))
            print(f"started {day}", flush=True)
        stop.wait(1)


def main() -> int:
    """Stands as a candidate, leads, and stands again."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    url = os.environ["DATABASE_URL"]
    with pyfence.Fence(url) as fence, psycopg.connect(url, autocommit=True) as conn:
        while not stop.is_set():
            try:
                with fence.lease("scheduler", ttl=15) as lease:
                    print(f"leading, token {lease.token}", flush=True)
                    lead(conn, lease)
            except pyfence.LeaseHeld as held:
                stop.wait(min(1.0, held.retry_in.total_seconds() if held.retry_in else 1.0))
            except (pyfence.StaleToken, pyfence.LeaseExpired, pyfence.LeaseLost) as late:
                print(f"not leading any more: {late}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
