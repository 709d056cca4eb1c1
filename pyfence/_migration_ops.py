"""What revisions and the Alembic environment execute: SQL text that reaches the server as it stands in its file.

Nothing here goes through SQLAlchemy's `text()` or through parameter formatting, so a colon, a percent sign, a dollar
quote or a backslash means the same online, in `--sql` output and in the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
from alembic.runtime.migration import MigrationContext

from pyfence import _resources

SCHEMA = "fence"
VERSION_TABLE = "alembic_version"


# A script runs under whatever settings the DBA's session has. Above READ COMMITTED it would look at the database as it
# was before it waited for the lock.
SCRIPT_SETTINGS = """\
set transaction isolation level read committed;
set local client_encoding = 'UTF8';
"""

# What a script starts with, after the prelude. Alembic writes a plain `create table` for its version table into a
# script that starts from nothing, so the empty one which `down` leaves behind is dropped first.
_START_CHECK = """\
do $pyfence$
declare
  v_start text := START;
  v_found text;
begin
  if pg_catalog.to_regclass('fence.alembic_version') is not null then
    select v.version_num into v_found from fence.alembic_version v;
  end if;
  if v_found is distinct from v_start then
    raise exception 'this script starts from revision %, but the database is at %',
        coalesce(v_start, 'base'), coalesce(v_found, 'base')
      using errcode = 'object_not_in_prerequisite_state',
            schema = 'fence',
            hint = 'Make a script for the revision that "pyfence migrate current" shows.';
  end if;
  if v_start is null then
    drop table if exists fence.alembic_version;
  end if;
end
$pyfence$;
"""


def start_check(revision: str | None) -> str:
    """SQL that stops a script unless the database is at `revision` (None: nothing is installed)."""
    return _START_CHECK.replace("START", "null" if revision is None else f"'{revision}'")


def prelude() -> str:
    """SQL that every migration starts with: its settings, its lock, and the schema for the version table."""
    return (_resources.migrations_dir() / "prelude.sql").read_text("utf-8")


def created(directory: Path) -> list[tuple[str, str]]:
    """List kind and name of what the files below `directory` create in the schema, in load order.

    Goes by the statements that start at the beginning of a line; what a loop makes is not seen.
    """
    statement = re.compile(rf"^create (?:or replace )?(function|table|view|type|domain) ({SCHEMA}\.\w+)", re.M)
    return [
        (kind, name)
        for path in _resources.sql_files(directory)
        for kind, name in statement.findall(path.read_text("utf-8"))
    ]


def run_raw(context: MigrationContext, text: str, *, name: str) -> None:
    """Execute `text` verbatim on the context's connection, or write it verbatim to its script.

    `name` says where the text comes from: as a comment in a script, as a note on an exception online.
    """
    if context.as_sql:
        context.impl.static_output(f"-- {name}\n{text.rstrip()}")
        return
    assert context.connection is not None
    cursor = context.connection.connection.cursor()
    try:
        if isinstance(cursor, psycopg.Cursor):
            # Several statements in one text: only the simple protocol takes that, so never prepare it.
            cursor.execute(text.encode(cursor.connection.info.encoding), prepare=False)
        else:
            cursor.execute(text)
    except Exception as exc:
        exc.add_note(f"in {name}")
        raise
    finally:
        cursor.close()


def run_directory(context: MigrationContext, directory: Path) -> None:
    """Run every SQL file below `directory` in load order."""
    files = _resources.sql_files(directory)
    if not files:
        raise FileNotFoundError(f"no SQL files in {directory}")
    for path in files:
        text = path.read_bytes().decode("utf-8")
        run_raw(context, text, name=path.relative_to(directory.parent.parent).as_posix())


def run_frozen(part: str) -> None:
    """Run one frozen directory, such as `0001/up`. For the revisions in `versions/`."""
    from alembic import op

    run_directory(op.get_context(), _resources.frozen_dir() / part)
