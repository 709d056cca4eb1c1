-- LF010 unless p_table is a kind of table that a guard can be put on.
create function fence._check_table(p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_class pg_catalog.pg_class;
  v_problem text;
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
    when v_class.relkind = 'p' or v_class.relispartition then 'it is partitioned: not available yet'
    when v_class.relkind <> 'r' then 'it is not a table'
    when exists (select from pg_catalog.pg_inherits i where p_table in (i.inhrelid, i.inhparent)) then 'it is part of an inheritance tree: not available yet'
  end;
  if v_problem is not null then
    perform fence._raise('LF010', pg_catalog.format('%s cannot be protected', coalesce(p_table::regclass::text, 'this')),
      pg_catalog.format('The reason: %s.', v_problem), 'Name an ordinary table: select fence.protect(''schema.table'', ''report:{id}'');',
      p_table);
  end if;
end
$$;
