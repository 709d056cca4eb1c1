-- The statements that put a guard's triggers on a table and everything under it, for the table's owner to run in one transaction:
-- first away with the triggers of other guards (a table that had one and became a part of this tree), then top-down, then what is not
-- the guard's any more, and last every partitioned table's row triggers switched off on what is under it now, where statement triggers
-- stand on every level. What is made under it later takes over the state that they have on the table itself. (ENABLE ALWAYS recurses to
-- the clones; CREATE OR REPLACE turns ALWAYS into ORIGIN: so both are said again.)
create function fence._arm_statements(p_guard fence._guard, p_table oid) returns setof text
language plpgsql
stable
as $$
declare
  v_function oid := fence._guard_function(p_guard.id);
begin
  return query
    select pg_catalog.format('drop trigger %I on %s', t.tgname, m.relid::regclass)
    from fence._members(p_table) m
    join pg_catalog.pg_trigger t on t.tgrelid = m.relid
    join pg_catalog.pg_proc p on p.oid = t.tgfoid
    where p.pronamespace = 'fence'::regnamespace and p.oid <> v_function and t.tgparentid = 0 and not t.tgisinternal
    order by m.depth, m.relid;
  return query
    select pg_catalog.format('create or replace trigger %I %s', w.name, w.definition)
    from fence._members(p_table) m cross join lateral fence._guard_triggers(p_guard, m.relid) w
    order by m.depth, m.relid;
  return query
    select pg_catalog.format('alter table %s enable always trigger %I', m.relid::regclass, w.name)
    from fence._members(p_table) m cross join lateral fence._guard_triggers(p_guard, m.relid) w
    order by m.depth, m.relid;
  return query
    select pg_catalog.format('drop trigger %I on %s', t.tgname, m.relid::regclass)
    from fence._members(p_table) m join pg_catalog.pg_trigger t on t.tgrelid = m.relid
    where t.tgfoid = v_function and t.tgparentid = 0
      and not exists (select from fence._guard_triggers(p_guard, m.relid) w where w.name = t.tgname);
  return query
    select pg_catalog.format('alter table %s disable trigger %I', i.inhrelid::regclass, w.name)
    from fence._members(p_table) m
    join pg_catalog.pg_inherits i on i.inhparent = m.relid
    cross join lateral fence._guard_triggers(p_guard, m.relid) w
    where starts_with(w.name, '0_fence_row')
    order by m.depth, i.inhrelid;
end
$$;
