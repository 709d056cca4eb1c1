create view fence.protected_tables as
select g.id, t.relid::pg_catalog.regclass as protected_table, g.schema_name, g.table_name, g.template as resource, g.scope, g.mode,
  g.expiry, g.writes, g.inserts, g.covering, g.token_column, g.uncatchable, g.protected_at, g.protected_by,
  coalesce(t.armed, false) as armed
from fence._guard g
left join lateral (
  select r.tgrelid as relid, pg_catalog.bool_and(r.tgenabled = 'A') and pg_catalog.count(*) = case g.scope when 'table' then 1 else 6 end as armed
  from pg_catalog.pg_trigger r
  where r.tgfoid = fence._guard_function(g.id)
  group by r.tgrelid
) t on true;

comment on view fence.protected_tables is
  'Every guard: table (null: its triggers are gone), resource, policies, and whether every trigger is there and ENABLE ALWAYS (armed).';
