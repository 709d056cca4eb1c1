"""What the guard costs: guarded against unguarded writes, side by side in one run: `pyfence bench`.

The figures are ratios, because times belong to one machine and one moment. Both sides take turns, so that whatever else
the machine does slows both; the processor time of the backend is measured where it can be read, because it does not
count the waiting. How to read them: docs/performance.md.
"""

from __future__ import annotations

import json as _json
import sys

OK, IMPOSSIBLE = 0, 3
"""Exit codes: measured (whatever the figures are); it could not run here."""


def run(*, database_url: str | None = None, quick: bool = False, json: bool = False, rows: int = 300_000) -> int:
    """Measure, and print a table to stdout; under 3 minutes, `quick` about 15 seconds.

    Two servers of the benchmark's own, one after the other: one in memory for what is measured in processor time, one
    on disk with fsync for durable commits. What it measures and why: docs/performance.md.

    Args:
        database_url: measure in this database, which has pyfence, in a scratch schema. About 30 lease rows stay.
        quick: fewer rows and rounds: for a first look.
        json: print one JSON document and nothing else.
        rows: rows of the bulk updates, at least 10.

    Returns:
        0 if it was measured (targets are shown, not enforced), 2 for bad arguments, 3 if it could not run here (stderr
        says why), 130 after Ctrl-C.
    """
    from dataclasses import replace

    import psycopg

    from pyfence.bench import _report
    from pyfence.bench._course import Course
    from pyfence.bench._groups import FULL, QUICK
    from pyfence.bench._place import BenchError
    from pyfence.errors import FenceError

    if rows < 10:
        print(f"pyfence bench: rows must be at least 10, not {rows}", file=sys.stderr)
        return 2
    size = replace(QUICK, rows=min(rows, QUICK.rows)) if quick else replace(FULL, rows=rows)
    course = Course(size)
    problem, code = "", OK
    try:
        course.run(database_url)
    except KeyboardInterrupt:
        problem, code = "interrupted", 130
    except (BenchError, FenceError, psycopg.Error) as error:
        problem, code = str(error).strip(), IMPOSSIBLE

    machine = _report.machine()
    console = _report.console(quiet=json)
    if course.results:
        console.print(f"{machine['cpus']} x {machine['processor']}; {machine['system']}", soft_wrap=True)
        for server in course.servers:
            console.print(server, soft_wrap=True)
        console.print(_report.table(course.results))
        for note in course.notes:
            console.print(note, soft_wrap=True)
    if problem:
        print(f"pyfence bench: {problem}", file=sys.stderr)
    if json:
        head = {"ok": code == OK, "exit_code": code, "problem": problem or None}
        what = {"rows": size.rows, "quick": quick, "machine": machine, "servers": course.servers, "notes": course.notes}
        print(_json.dumps({**head, **what, "results": _report.as_json(course.results)}, indent=2))
    return code
