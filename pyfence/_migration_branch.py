"""The schema's revisions as a labelled branch of an application's own Alembic environment.

`fence.alembic_version` then holds the branch's revision ('fence_0001'), which `pyfence migrate` does not know and
leaves alone; and the branch refuses a database where it holds one of `pyfence migrate`'s.
"""

from __future__ import annotations

from alembic import op

from pyfence import _resources
from pyfence._migration_ops import SCHEMA, VERSION_TABLE, prelude, run_directory, run_raw

PREFIX = "fence_"
"""What the branch's revisions are called: this and the number of the revision."""

# The prelude sets a search_path for the transaction; the application's next revision wants its own back.
_BEFORE = """\
select pg_catalog.set_config('fence.search_path_before', pg_catalog.current_setting('search_path'), true);
"""
_AFTER = """\
select pg_catalog.set_config('search_path', pg_catalog.current_setting('fence.search_path_before'), true);
"""
_CHECK = """\
create table if not exists {table} (
  version_num character varying(32) not null,
  constraint alembic_version_pkc primary key (version_num)
);
do $pyfence$
declare
  v_start text := {before};
  v_found text;
begin
  select v.version_num into v_found from {table} v;
  if v_found is distinct from v_start then
    raise exception 'schema {schema} is at revision %, and this migration starts from %',
        coalesce(v_found, 'base'), coalesce(v_start, 'base')
      using errcode = 'object_not_in_prerequisite_state',
        schema = '{schema}',
        detail = 'It is migrated by pyfence migrate, or as a branch of an application''s migrations: never by both.',
        hint = case
          when v_found like '{prefix}%' then 'Look at the versions of the branch in this environment: alembic current.'
          else 'Use pyfence migrate for this database, and take the branch out of version_locations.'
        end;
  end if;
end
$pyfence$;
"""


def run_upgrade(revision: str, *, before: str | None) -> None:
    """Runs the frozen files of a revision, on top of `before`."""
    _run(f"{revision}/up", start=before, end=revision)


def run_downgrade(revision: str, *, before: str | None) -> None:
    """Takes a revision back to `before`."""
    _run(f"{revision}/down", start=revision, end=before)


def _run(part: str, *, start: str | None, end: str | None) -> None:
    context = op.get_context()
    table = f"{SCHEMA}.{VERSION_TABLE}"
    check = _CHECK.format(table=table, schema=SCHEMA, prefix=PREFIX, before=_literal(start))
    record = f"delete from {table};\n"  # noqa: S608
    if end is not None:
        record += f"insert into {table} (version_num) values ({_literal(end)});\n"  # noqa: S608
    run_raw(context, _BEFORE, name="the search_path, for the end")
    run_raw(context, prelude(), name="prelude")
    run_raw(context, check, name="one way of migrating")
    run_directory(context, _resources.frozen_dir() / part)
    run_raw(context, record, name="the revision")
    run_raw(context, _AFTER, name="the search_path as it was")


def _literal(revision: str | None) -> str:
    return "null" if revision is None else f"'{PREFIX}{revision}'"
