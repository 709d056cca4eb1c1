-- The leaves of a partitioned tree whose rows nothing checks where they come in through a level without statement triggers: PostgreSQL's clones
-- of every level's row triggers are off there. They may be off only where every level from the root down to the leaf has its statement triggers.
create function fence._row_guard_faults(p_guard fence._guard, p_table oid) returns setof oid
language plpgsql
stable
as $$
declare
  v_holes oid[] := array(
    select distinct f.relid
    from fence._trigger_faults(p_guard, p_table) f
    where f.fault <> 'changes rows behind the guard'
      and f.name not in (
        select w.name from fence._members(p_table) u cross join lateral fence._guard_triggers(p_guard, u.relid) w where w.level = 'row'));
begin
  return query
    select distinct m.relid
    from fence._members(p_table) m
    join pg_catalog.pg_class c on c.oid = m.relid and c.relispartition and c.relkind = 'r'
    cross join (values ('^0_fence_row[0-9]*$'), ('^0_fence_row_update[0-9]*$')) r (name)
    where not exists (
        select from pg_catalog.pg_trigger t
        where t.tgrelid = m.relid and t.tgname ~ r.name and t.tgfoid = fence._guard_function(p_guard.id) and t.tgenabled = 'A')
      and exists (select from pg_catalog.pg_partition_ancestors(m.relid) a where a.relid = any (v_holes));
end
$$;
