-- The registry row of the guard on a table, or null: told by the triggers on it, which survive renames and restores.
create function fence._guard_of(p_table oid) returns fence._guard
language sql
stable
as $$
  select g
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_proc p on p.oid = t.tgfoid
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  join fence._guard g on p.proname = '_guard_' || g.id
  where t.tgrelid = p_table and n.nspname = 'fence' and not t.tgisinternal
  limit 1
$$;
