#!/usr/bin/env python3
"""What a grant costs as the table of leases grows, and how long a hand-over to a waiter takes.

    .venv/bin/python bench/takeover.py > bench/results/<date>-<commit>-takeover.json
    .venv/bin/python bench/takeover.py --sizes 1000 100000 --rounds 3 --hand-overs 20     # smaller

Grants: `fence.acquire` and `fence.release` of one resource over and over, and of 10,000 in turn, in databases with so
many further leases each; the databases take turns in every round. Hand-overs: from the moment `release` is called until
the waiting `acquire` has its lease, with waiters that are called (NOTIFY) and with waiters that ask by themselves, in
turns. About fifteen minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

import pyfence
from pyfence import migrate
from pyfence.bench import _report
from pyfence.bench._place import FENCE_OWNER, WRITER, Place, own_server

SPREAD = 10_000
PAIRS = 400  # in one round of one database
FILL = """
insert into fence._lease (resource, token, owner, ttl, acquired_at, expires_at, lineage, closed_reason)
select %s || n, 1, 'nobody', '30 s', now(), now(), 1, 'released' from generate_series(1, %s) n
"""


def database(place: Place, rows: int) -> psycopg.Connection[Any]:
    """A database with so many leases, and a client's connection to it."""
    name = f"leases_{rows}"
    place.owner.execute(f"create database {name} owner {FENCE_OWNER}")
    url = make_conninfo(place.owner.info.dsn, dbname=name, user=FENCE_OWNER)
    migrate.up(url)
    with psycopg.connect(url, autocommit=True) as owner:
        for (statement,) in owner.execute("select fence._role_grants(%s::regrole, 'client')", (WRITER,)).fetchall():
            owner.execute(statement)
        owner.execute(FILL, ("other:", rows))
        owner.execute(FILL, ("spread:", SPREAD))
        owner.execute("vacuum analyze fence._lease")
    return psycopg.connect(make_conninfo(url, user=WRITER), autocommit=True)


def cpu(conn: psycopg.Connection[Any]) -> float:
    """Microseconds that the connection's backend has spent on a processor."""
    return int(Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text().split()[0]) / 1000


def grants(conn: psycopg.Connection[Any], next_name: Callable[[], str], pairs: int) -> tuple[float, float]:
    """CPU and wall time of a grant and its release, in microseconds."""
    began, used = time.perf_counter(), cpu(conn)
    for _ in range(pairs):
        name = next_name()
        row = conn.execute("select token, secret from fence.acquire(%s)", (name,), prepare=True).fetchone()
        assert row is not None
        conn.execute("select fence.release(%s, %s, %s)", (name, *row), prepare=True)
    return (cpu(conn) - used) / pairs, (time.perf_counter() - began) * 1e6 / pairs


def measure_grants(place: Place, sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    conns = {size: database(place, size) for size in sizes}
    spread = {size: cycle([f"spread:{n + 1}" for n in range(SPREAD)]) for size in sizes}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for number in range(-1, rounds):  # the first one warms up
        for size in sizes if number % 2 else sizes[::-1]:
            conn = conns[size]
            kinds: dict[str, Callable[[], str]] = {"hot": lambda: "hot", "spread": lambda size=size: next(spread[size])}
            for kind, next_name in kinds.items():
                result = grants(conn, next_name, PAIRS)
                if number >= 0:
                    found.setdefault((kind, size), []).append(result)
            owner = make_conninfo(conn.info.dsn, user=FENCE_OWNER)
            with psycopg.connect(owner, autocommit=True) as tidy:
                tidy.execute("vacuum fence._lease")
    base = sizes[0]
    return [
        {
            "resources": kind,
            "lease_rows": size,
            "cpu_us": round(median(used for used, _ in results), 1),
            "wall_us": round(median(wall for _, wall in results), 1),
            "grants_per_second": round(1e6 / median(wall for _, wall in results)),
            "cpu_against_smallest": round(
                median(a[0] / b[0] for a, b in zip(results, found[kind, base], strict=True)), 3
            ),
        }
        for (kind, size), results in sorted(found.items())
    ]


def measure_hand_overs(place: Place, waiters: int, count: int) -> dict[str, Any]:
    """Milliseconds from the call of release until the next one has the lease, by how the waiters learn of it."""
    url = make_conninfo(place.connection.info.dsn)
    found: dict[str, list[float]] = {"called": [], "asking": []}
    with ThreadPoolExecutor(waiters) as threads:
        for number in range(count):
            for kind in found if number % 2 else list(found)[::-1]:
                name = f"hand-over:{kind}:{number // 10}"  # ten of each with the same crowd
                with pyfence.Fence(url) as holder, pyfence.Fence(url) as crowd:
                    if kind == "asking":
                        join = crowd._backend.queue.join
                        crowd._backend.queue.join = (  # type: ignore[method-assign]
                            lambda wake, *, listen, join=join: join(wake, listen=False)
                        )
                    lease = holder.acquire(name, ttl=600, wait=30)
                    waiting = {threads.submit(crowd.acquire, name, 600, None, 60) for _ in range(waiters)}
                    _wait_for_places(place, name, waiters, called=kind == "called")
                    time.sleep(random.uniform(0.5, 1.5))
                    found[kind].append(_hand_over(lease, waiting))
    return {
        kind: {
            "median_ms": round(median(times), 2),
            "p99_ms": round(quantiles(times, n=100, method="inclusive")[98], 2),
            "hand_overs": len(times),
        }
        for kind, times in found.items()
    }


def _wait_for_places(place: Place, name: str, waiters: int, *, called: bool) -> None:
    statement = "select count(*) from fence._waiter where resource = %s and (listener is not null or not %s)"
    while place.owner.execute(statement, (name, called)).fetchone() != (waiters,):
        time.sleep(0.01)


def _hand_over(lease: pyfence.Lease, waiting: set[Future[pyfence.Lease]]) -> float:
    """One hand-over; then everybody else gets the lease and gives it back, too, so that nobody is left waiting."""
    began = time.perf_counter()
    lease.release()
    took = 0.0
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        took = took or (time.perf_counter() - began) * 1000
        for place in done:
            place.result().release()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--hand-overs", type=int, default=100)
    options = parser.parse_args()
    out: dict[str, Any] = {"machine": _report.machine()}
    with own_server(durable=False) as place:
        out["server"] = place.described
        print("measuring: grants ...", file=sys.stderr)
        out["grants"] = measure_grants(place, options.sizes, options.rounds)
        for waiters in (1, 10):
            print(f"measuring: hand-overs, {waiters} waiting ...", file=sys.stderr)
            out[f"hand_overs_{waiters}_waiting"] = measure_hand_overs(place, waiters, options.hand_overs)
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main()
