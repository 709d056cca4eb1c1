-- The registry row of the guard on a table, or null: told by the triggers on it, which survive renames and restores. Where triggers of
-- a second table call the same function (its owner may make such), the guard is that of the table whose name it was made for.
create function fence._guard_of(p_table oid) returns fence._guard
language sql
stable
as $$
  select g
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_proc p on p.oid = t.tgfoid
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  join fence._guard g on p.proname = '_guard_' || g.id
  join pg_catalog.pg_class c on c.oid = t.tgrelid
  join pg_catalog.pg_namespace d on d.oid = c.relnamespace
  where t.tgrelid = p_table and n.nspname = 'fence' and not t.tgisinternal
    and ((g.schema_name, g.table_name) = (d.nspname::text, c.relname::text)
      or not exists (select from pg_catalog.pg_trigger o where o.tgfoid = t.tgfoid and o.tgrelid <> t.tgrelid))
  limit 1
$$;
