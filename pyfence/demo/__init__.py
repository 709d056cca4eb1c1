"""The story of the stale writer, played for real: `pyfence demo`.

Worker A takes a lease and is frozen past its expiry; worker B takes over with a newer token and publishes; A wakes up
and writes with its old token. Every writer is a process of its own, the freezing is SIGSTOP, the database is a real
PostgreSQL. What the database answers is compared with what pyfence promises.
"""

from __future__ import annotations

import json as _json
import sys

OK, DIFFERENT, IMPOSSIBLE = 0, 1, 3
"""Exit codes: as promised; an outcome differs; it could not be played here."""


def run(*, keep: bool = False, database_url: str | None = None, json: bool = False) -> int:
    """Play the story, about 10 seconds, and show it on stdout as it happens. Leaves nothing running and nothing behind.

    Args:
        keep: leave the server (or, with `database_url`, the scratch schema) and say how to reach and remove it.
        database_url: play in a scratch schema of this database instead of on a server of the demo's own. pyfence is
            installed there for the time being if it is not.
        json: print one JSON document at the end and nothing else.

    Returns:
        0 if every outcome was as promised, 1 if one differs, 3 if it could not be played (stderr says why), and 128
        plus the signal's number after Ctrl-C, SIGTERM or SIGHUP.
    """
    import psycopg

    from pyfence.demo._own_server import own_server
    from pyfence.demo._processes import PlayerFailed
    from pyfence.demo._record import Record
    from pyfence.demo._scratch import scratch_schema
    from pyfence.demo._show import Show
    from pyfence.demo._signals import Interrupted, interruptible
    from pyfence.demo._stage import Stage, StageError
    from pyfence.demo._story import Story, StoryOver
    from pyfence.errors import FenceError

    show = Show(quiet=json)
    record = Record(tell=show.event)
    stage: Stage | None = None
    problem = ""
    try:
        with interruptible():
            if database_url is None:
                show.say("Starting a PostgreSQL of the demo's own ...")
                setting = own_server(keep=keep)
            else:
                setting = scratch_schema(database_url, keep=keep)
            with setting as stage:
                show.say(f"{stage.described}. Table {stage.schema}.report is protected.")
                record.restart()
                try:
                    Story(stage, record).play()
                except (StoryOver, PlayerFailed) as broken:
                    record.check(f"the story is played to its end ({broken})", False)
        code = OK if record.ok else DIFFERENT
    except Interrupted as interrupted:
        problem, code = str(interrupted), 128 + interrupted.number
    except (StageError, FenceError, psycopg.Error) as error:
        problem, code = str(error).strip(), IMPOSSIBLE

    left_behind = stage.left_behind if stage is not None else []
    show.end(record, left_behind)
    if problem:
        print(f"pyfence demo: {problem}", file=sys.stderr)
    if json:
        head = {
            "ok": code == OK,
            "exit_code": code,
            "problem": problem or None,
            "server": stage.described if stage is not None else None,
            "left_behind": left_behind,
        }
        print(_json.dumps({**record.as_json(), **head}, indent=2))
    return code
