create view fence.protected_tables as
select g.id, s.relid::pg_catalog.regclass as protected_table, g.schema_name, g.table_name, g.template as resource, g.scope, g.mode,
  g.expiry, g.writes, g.inserts, g.covering, g.token_column, g.uncatchable, g.protected_at, g.protected_by, s.armed
from fence._guard g
cross join lateral fence._guard_state(g.id) s;

comment on view fence.protected_tables is
  'Every guard: table (null: its triggers are gone), resource, policies, and whether every trigger of it is as it should be, with no table above that passes it by (armed; null: the table is locked, nobody can tell).';
