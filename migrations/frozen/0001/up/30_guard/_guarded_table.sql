-- The table that a guard has to be on: where its triggers are; else, where there are none, the table of the name that it was made for, unless that has a
-- guard of its own by now. Null where there is no such table.
create function fence._guarded_table(p_guard fence._guard) returns oid
language plpgsql
stable
as $$
declare
  v_table oid := fence._table_of(p_guard);
begin
  if v_table is null then
    select c.oid into v_table
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = p_guard.schema_name and c.relname = p_guard.table_name and c.relkind in ('r', 'p')
      and (fence._guard_of(c.oid)).id is null;
  end if;
  return v_table;
end
$$;
