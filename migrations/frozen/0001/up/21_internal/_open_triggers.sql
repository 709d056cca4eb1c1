-- The triggers of others in a partitioned tree that may change a row where it arrives, and run the writer's code meanwhile: row triggers before an
-- insert whose functions have no search_path of their own, so that the writer's says what they call.
create function fence._open_triggers(p_table oid) returns table (relid oid, name text, function oid)
language sql
stable
as $$
  select m.relid, t.tgname::text, f.oid
  from fence._members(p_table) m
  join pg_catalog.pg_trigger t on t.tgrelid = m.relid and t.tgparentid = 0
  join pg_catalog.pg_proc f on f.oid = t.tgfoid
  join pg_catalog.pg_language l on l.oid = f.prolang
  where exists (select from pg_catalog.pg_class c where c.oid = p_table and c.relkind = 'p')
    and t.tgtype::integer & 7 = 7 and f.pronamespace <> 'fence'::regnamespace and l.lanname not in ('internal', 'c')
    and not exists (select from pg_catalog.unnest(f.proconfig) s where pg_catalog.starts_with(s, 'search_path='))
$$;
