-- The leaves of a partitioned tree whose rows nothing checks where they come in through a level that lacks a check after the statement: of PostgreSQL's
-- clones of the levels' row triggers, none is on there. They may be off only where every level from the root down to the leaf has its checks.
create function fence._row_guard_faults(p_guard fence._guard, p_table oid) returns setof oid
language plpgsql
stable
as $$
declare
  v_holes oid[] := array(
    select distinct f.relid
    from fence._trigger_faults(p_guard, p_table) f
    where f.name in ('0_fence_guard', '0_fence_insert', '0_fence_update', '0_fence_delete'));
begin
  return query
    select m.relid
    from fence._members(p_table) m
    join pg_catalog.pg_class c on c.oid = m.relid and c.relispartition and c.relkind = 'r'
    where exists (select from pg_catalog.pg_partition_ancestors(m.relid) a where a.relid = any (v_holes))
      and 2 > (
        select pg_catalog.count(distinct t.tgtype)  -- after insert or delete, after update
        from pg_catalog.pg_trigger t
        where t.tgrelid = m.relid and t.tgfoid = fence._guard_function(p_guard.id) and t.tgenabled = 'A'
          and starts_with(t.tgname, '0_fence_row'));
end
$$;
