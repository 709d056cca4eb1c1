"""The SQL of the benchmark. `{schema}` and the like are filled in with `psycopg.sql`; values are bound."""

from __future__ import annotations

SCHEMA = "pyfence_bench"
TENANTS = 10  # claims of the row scope
NAMES = 16  # leases that acquire and release take turns with

CREATE_ROLE = "create role {role} login"
CREATE_DATABASE = "create database {name} owner {role}"
CREATE_SCHEMA = "create schema {schema}"
DROP_SCHEMA = "drop schema if exists {schema} cascade"

# Half of every page stays free: an update of every row fits beside the old versions, which the vacuum between two runs
# takes away. So every run finds the table as the one before did.
CREATE_TABLE = """
create table {table} (
  id integer not null,
  tenant integer not null,
  amount integer not null,
  body text not null,
  primary key (id)
) with (fillfactor = 45, autovacuum_enabled = false)
"""
FILL_TABLE = """
insert into {table}
select n, n %% %s, 0, pg_catalog.repeat('x', 40) from pg_catalog.generate_series(1, %s) n
"""
ANALYZE = "vacuum (analyze) {table}"
VACUUM = "vacuum {table}"
VACUUM_LEASES = "vacuum fence._lease"

CREATE_UPSERT_TABLE = """
create table {table} (
  resource text primary key,
  owner text not null,
  expires_at timestamptz not null
) with (fillfactor = 45, autovacuum_enabled = false)
"""

PROTECT = "select fence.protect(%s::pg_catalog.regclass, %s)"
UNPROTECT = "select fence.unprotect(%s::pg_catalog.regclass)"
LET_IN = (
    "grant usage on schema {schema} to {role}",
    "alter default privileges in schema {schema} grant select, insert, update, delete on tables to {role}",
)
ROLE_GRANTS = "select fence._role_grants(%s::pg_catalog.regrole, %s)"

ACQUIRE = "select granted, token, secret, owner from fence.acquire(%s, '1 hour', 'pyfence bench')"
RELEASE = "select fence.release(%s, %s, %s)"
PRESENT = "select fence.present(%s, %s, %s)"
PRESENT_ALL = "select fence.present_all(%s, %s, %s)"
FENCED_UPDATE = "select fence.fenced_update(%s::pg_catalog.regclass, %s, %s, %s, %s, %s)"

BULK_UPDATE = "update {table} set amount = amount + 1"
ROW_UPDATE = "update {table} set amount = %s where id = %s"
UPSERT = """
insert into {table} as l (resource, owner, expires_at)
values (%s, 'pyfence bench', pg_catalog.clock_timestamp() + interval '1 hour')
on conflict (resource) do update set owner = excluded.owner, expires_at = excluded.expires_at
"""

DURABLE = {True: "set synchronous_commit = on", False: "set synchronous_commit = off"}
FSYNC = "select pg_catalog.current_setting('fsync')"
BURN = "select pg_catalog.count(*) from pg_catalog.generate_series(1, 300000)"
SCHEMA_VERSION = "select fence.schema_version()"
