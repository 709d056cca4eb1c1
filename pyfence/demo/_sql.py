"""The SQL of the demo: its tables, the naive trigger it compares with, and what it asks about a given database.

`{schema}` is the demo's own schema, filled in with `psycopg.sql`.
"""

from __future__ import annotations

REPORT_TABLE = """
create table {schema}.report (
  id integer constraint report_pkey primary key,
  body text not null,
  written_by text not null
)
"""

# What many programs do instead of pyfence: every write brings its token, and the table remembers the highest one seen.
NAIVE_TABLE = """
create table {schema}.report_naive (
  id integer constraint report_naive_pkey primary key,
  body text not null,
  written_by text not null,
  token bigint not null
)
"""

NAIVE_FUNCTION = """
create function {schema}.refuse_lower_token() returns trigger
language plpgsql
as $$
begin
  if new.token < old.token then
    raise exception 'token % is lower than %, the highest seen', new.token, old.token;
  end if;
  return new;
end
$$
"""
NAIVE_CODE = "P0001"  # what a plain RAISE EXCEPTION gives

NAIVE_TRIGGER = """
create trigger refuse_lower_token before update on {schema}.report_naive
for each row execute function {schema}.refuse_lower_token()
"""

ROWS = (
    "insert into {schema}.report select n, 'nothing yet', 'nobody' from pg_catalog.generate_series(1, 2) n",
    "insert into {schema}.report_naive select n, 'nothing yet', 'nobody', 0 from pg_catalog.generate_series(1, 2) n",
)

PROTECT = "select fence.protect(%s::pg_catalog.regclass, %s)"
UNPROTECT = "select fence.unprotect(%s::pg_catalog.regclass)"
REVOKE = "select fence.revoke(%s, 'the demo is over')"

CREATE_ROLE = "create role {role} login"
CREATE_DATABASE = "create database {name} owner {role}"
CREATE_SCHEMA = "create schema {schema}"
CREATE_SCHEMA_FOR = "create schema {schema} authorization {role}"
DROP_SCHEMA = "drop schema {schema} cascade"
WAIT_BRIEFLY = "set lock_timeout = '10s'"

GRANT_WRITES = (
    "grant usage on schema {schema} to {role}",
    "grant select, update on all tables in schema {schema} to {role}",
)
ROLE_GRANTS = "select fence._role_grants(%s::pg_catalog.regrole, %s)"

READ_ROW = "select body, written_by from {table} where id = %s"

# -- the writes of the players ----------------------------------------------------------------------------------------

LEGACY_UPDATE = "update {table} set body = %s, written_by = %s where id = %s"
NAIVE_UPDATE = "update {table} set body = %s, written_by = %s, token = %s where id = %s"
FORGED_PRESENT = "select fence.present(%s, %s, %s)"

# -- questions to a given database ------------------------------------------------------------------------------------

MAY_CREATE = """
select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create'), current_user::text,
  pg_catalog.current_database()::text, pg_catalog.pg_is_in_recovery()
"""

# What is there of pyfence: its schema, its version table, its functions, and a right to look into the schema.
INSTALLED = """
select n.oid is not null,
  exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'alembic_version'),
  exists (select from pg_catalog.pg_proc p where p.pronamespace = n.oid and p.proname = 'schema_version'),
  coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false)
from (select pg_catalog.to_regnamespace('fence') as oid) n
"""
SCHEMA_VERSION = "select fence.schema_version()"

MISSING_RIGHTS = """
select p.proname::text
from pg_catalog.pg_proc p
where p.pronamespace = 'fence'::pg_catalog.regnamespace and p.proname = any (%s)
  and not pg_catalog.has_function_privilege(p.oid, 'execute')
order by p.proname
"""
NEEDED = ["acquire", "release", "present", "fenced_update", "protect", "unprotect", "revoke", "schema_version"]

DROP_VERSION_TABLE = "drop table if exists fence.alembic_version"
DROP_FENCE = "drop schema if exists fence"  # no cascade: what somebody else has put there stays
