-- A registry row, with the defaults of a new guard, for a table that has none. Rows left behind under the table's name, by a
-- table that is gone, go, and their functions.
create function fence._new_guard(p_table oid) returns fence._guard
language plpgsql
volatile
as $$
declare
  v_guard fence._guard;
  v_left integer;
begin
  select n.nspname, c.relname into v_guard.schema_name, v_guard.table_name
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where c.oid = p_table;
  for v_left in
    select g.id from fence._guard g where g.schema_name = v_guard.schema_name and g.table_name = v_guard.table_name
  loop
    if not exists (select from pg_catalog.pg_trigger t where t.tgfoid = fence._guard_function(v_left)) then
      perform fence._forget_guard(v_left);
      perform fence._drop_unused_functions();
    end if;
  end loop;
  loop
    insert into fence._guard as g (schema_name, table_name, template, template_schema, template_table, scope, mode, expiry,
      writes, inserts, uncatchable, protected_at, protected_by)
    values (v_guard.schema_name, v_guard.table_name, '', v_guard.schema_name, v_guard.table_name, 'table', 'enforce', 'reject',
      'many', 'check', false, pg_catalog.now(), session_user)
    returning g.* into v_guard;
    -- A function that a schema-only restore has brought, without its registry row, keeps its number: another table may use it.
    exit when fence._guard_function(v_guard.id) is null;
    delete from fence._guard g where g.id = v_guard.id;
  end loop;
  return v_guard;
end
$$;
