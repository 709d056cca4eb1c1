"""SQL that protects tables: the same text online and in a script, one block each, bounded by a lock_timeout.

Each block first takes the lock that it needs, and gives up where it cannot get it in time: whoever waits for a lock on
a busy table makes all later writers wait behind it. The session's own lock_timeout is back at the end.
"""

from __future__ import annotations

import re

from pyfence.errors import BadArgument
from pyfence.sqlalchemy._protection import Options

LOCK_TIMEOUT = "2s"
"""How long protecting a table may hold up its writers."""

_TIMEOUT = re.compile(r"\d+ *(us|ms|s|min|h)?")

_BLOCK = """\
do $pyfence$
declare
  v_table pg_catalog.regclass := {table};
  v_timeout text := pg_catalog.current_setting('lock_timeout');
begin
  perform pg_catalog.set_config('lock_timeout', {timeout}, true);
  begin
    execute pg_catalog.format('lock table %s in {lock} mode', v_table);
  exception when lock_not_available then
    raise exception 'could not lock % within %', v_table, {timeout}
      using errcode = 'lock_not_available',
        detail = 'Transactions that use the table stayed open; its writers were not made to wait any longer.',
        hint = 'Nothing was changed. Run it again, or with a longer lock_timeout.';
  end;
  perform pg_catalog.set_config('lock_timeout', v_timeout, true);
  perform {call};
end
$pyfence$;"""


def protect(table: str, schema: str | None, resource: str | None, options: Options, lock_timeout: str) -> str:
    """Guards a table, or changes its guard; with no resource it keeps its own, and LF010 if it has no guard."""
    arguments = [
        "p_table => v_table",
        f"p_resource => {'fence._template_of(v_table)' if resource is None else literal(resource)}",
        *(f"p_{name} => {literal(value)}" for name, value in options.given().items()),
    ]
    return _block(table, schema, "share row exclusive", f"fence.protect({', '.join(arguments)})", lock_timeout)


def unprotect(table: str, schema: str | None, lock_timeout: str) -> str:
    """Takes a table's guard off."""
    return _block(table, schema, "access exclusive", "fence.unprotect(v_table)", lock_timeout)


def literal(value: str | bool) -> str:
    """A value as SQL writes it, whatever standard_conforming_strings is."""
    if isinstance(value, bool):
        return str(value).lower()
    if "\0" in value or "$pyfence$" in value:
        raise BadArgument(f"not a name: {value!r}")
    prefix = "E" if "\\" in value else ""
    return prefix + "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def checked_timeout(lock_timeout: object) -> str:
    """A lock_timeout as PostgreSQL reads it, such as '2s'; 0, which would wait for ever, is refused."""
    if (
        not isinstance(lock_timeout, str)
        or not _TIMEOUT.fullmatch(lock_timeout)
        or not re.search("[1-9]", lock_timeout)
    ):
        raise BadArgument(
            f"not a lock_timeout: {lock_timeout!r}", hint="Pass a text such as '2s' or '500ms', above zero."
        )
    return lock_timeout


def _block(table: str, schema: str | None, lock: str, call: str, lock_timeout: str) -> str:
    name = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table) if part is not None)
    timeout = literal(checked_timeout(lock_timeout))
    return _BLOCK.format(table=literal(name), timeout=timeout, lock=lock, call=call)
