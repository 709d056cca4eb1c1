-- Another table (the top of its tree) that has triggers of a guard, such as a partition that was detached; null for none.
create function fence._second_table(p_guard integer, p_table oid) returns oid
language sql
stable
as $$
  select pg_catalog.min(r.relid)
  from pg_catalog.pg_trigger t cross join lateral fence._tree_root(t.tgrelid) r (relid)
  where t.tgfoid = fence._guard_function(p_guard) and r.relid <> p_table
$$;
