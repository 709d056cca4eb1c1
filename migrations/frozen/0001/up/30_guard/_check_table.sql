-- LF010 unless p_table is a kind of table that a guard can be put on.
create function fence._check_table(p_table oid) returns void
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_class pg_catalog.pg_class;
  v_problem text;
  v_pending text := (
    select pg_catalog.format('alter table %s detach partition %s finalize;', i.inhparent::regclass, i.inhrelid::regclass)
    from fence._members(p_table) m join pg_catalog.pg_inherits i on i.inhrelid = m.relid
    where i.inhdetachpending limit 1);
begin
  select c.* into v_class from pg_catalog.pg_class c where c.oid = p_table;
  v_problem := case
    when p_table is null then 'no table was named'
    when not found then 'there is no such table'
    when v_class.relnamespace in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'fence'::regnamespace)
      then 'it is a system table or one of pyfence''s own'
    when v_class.relpersistence = 't' then 'it is a temporary table: only its own session sees it'
    when v_class.relkind = 'v' then 'it is a view: protect the tables under it'
    when v_class.relkind = 'm' then 'it is a materialized view: it has no writers'
    when v_class.relkind = 'f' then 'it is a foreign table: protect it on the server that stores it'
    when v_class.relkind not in ('r', 'p') then 'it is not a table'
    when v_pending is not null then 'a partition of it is halfway detached: the command was interrupted'
    when fence._tree_root(p_table) <> p_table then pg_catalog.format('writes through %s would pass its guard by: protect that table, and this one '
      || 'is guarded with it', fence._tree_root(p_table)::regclass)
    when exists (select from fence._members(p_table) m join pg_catalog.pg_class c on c.oid = m.relid where c.relkind = 'f' or c.relpersistence = 't')
      then 'a foreign or temporary table is part of it'
    when exists (
      select from fence._members(p_table) m join pg_catalog.pg_inherits i on i.inhrelid = m.relid
      where i.inhparent not in (select o.relid from fence._members(p_table) o)) then 'a child of it has another parent, through which its guard would be passed by'
  end;
  if v_problem is not null then
    perform fence._raise('LF010', pg_catalog.format('%s cannot be protected', coalesce(p_table::regclass::text, 'this')),
      pg_catalog.format('The reason: %s.', v_problem),
      coalesce(v_pending, pg_catalog.format('Name an ordinary table that is in no other one: select fence.protect(%L, ''report:{id}'');',
        coalesce(nullif(fence._tree_root(p_table), p_table)::regclass::text, 'schema.table'))),
      p_table);
  end if;
end
$$;
