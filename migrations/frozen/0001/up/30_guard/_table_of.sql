-- The table that a guard sits on, or null: the one it was made for, going by its name, if its triggers are there; else the oldest (the top of
-- its tree) whose triggers call its function. Null where there is none.
create function fence._table_of(p_guard fence._guard) returns oid
language plpgsql
stable
as $$
declare
  v_function oid := fence._guard_function(p_guard.id);
  v_named oid := fence._named_table(p_guard);
begin
  if exists (select from pg_catalog.pg_trigger t where t.tgrelid = v_named and t.tgfoid = v_function) then
    return v_named;
  end if;
  return (select pg_catalog.min(fence._tree_root(t.tgrelid)) from pg_catalog.pg_trigger t where t.tgfoid = v_function);
end
$$;
