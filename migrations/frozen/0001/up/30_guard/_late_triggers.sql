-- The triggers of others in a partitioned tree that may change a row after the guard has looked at it: row triggers before an
-- update whose names sort after the guard's last. Everywhere else the guard sees final rows, after the statement.
create function fence._late_triggers(p_table oid) returns table (relid oid, trigger oid, name text)
language sql
stable
as $$
  select t.tgrelid, t.oid, t.tgname::text
  from fence._members(p_table) m
  join pg_catalog.pg_trigger t on t.tgrelid = m.relid
  where exists (select from pg_catalog.pg_class c where c.oid = p_table and c.relkind = 'p')
    and t.tgtype::integer & 3 = 3 and t.tgtype::integer & 16 <> 0
    and t.tgname::text collate "C" > '~~0_fence_leave'
$$;
