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
    with member as materialized (
      select m.relid, m.depth from fence._members(p_table) m
    ), wanted as materialized (
      select m.relid, m.depth, w.name, w.definition from member m cross join lateral fence._guard_triggers(p_guard, m.relid) w
    ), present as materialized (
      select m.relid, m.depth, t.tgname, t.tgfoid, p.pronamespace
      from member m
      join pg_catalog.pg_trigger t on t.tgrelid = m.relid and t.tgparentid = 0 and not t.tgisinternal
      join pg_catalog.pg_proc p on p.oid = t.tgfoid
    ), step (ordinal, depth, relid, statement) as (
      select 1, t.depth, t.relid, pg_catalog.format('drop trigger %I on %s', t.tgname, t.relid::regclass)
      from present t where t.pronamespace = 'fence'::regnamespace and t.tgfoid <> v_function
      union all
      select 2, w.depth, w.relid, pg_catalog.format('create or replace trigger %I %s', w.name, w.definition) from wanted w
      union all
      select 3, w.depth, w.relid, pg_catalog.format('alter table %s enable always trigger %I', w.relid::regclass, w.name) from wanted w
      union all
      select 4, t.depth, t.relid, pg_catalog.format('drop trigger %I on %s', t.tgname, t.relid::regclass)
      from present t
      where t.tgfoid = v_function and not exists (select from wanted w where w.relid = t.relid and w.name = t.tgname)
      union all
      select 5, w.depth, i.inhrelid, pg_catalog.format('alter table %s disable trigger %I', i.inhrelid::regclass, w.name)
      from wanted w join pg_catalog.pg_inherits i on i.inhparent = w.relid
      where pg_catalog.starts_with(w.name, '0_fence_row')
    )
    select s.statement from step s order by s.ordinal, s.depth, s.relid;
end
$$;
