-- The part of unprotect that needs the schema owner's rights: takes the guard out of the registry and returns the
-- statements that drop its triggers; those are the table owner's to run. Then its function is unused. Codes: 42501 not the table's owner.
create function fence._undefine_guard(p_table regclass) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
begin
  perform fence._check_owner(p_table);
  perform fence._record('unprotected', null, null, null, to_jsonb(v_guard));
  delete from fence._guard g where g.id = v_guard.id;
  return query
    select format('drop trigger %I on %s', t.tgname, p_table)
    from pg_trigger t
    where t.tgrelid = p_table and t.tgfoid = fence._guard_function(v_guard.id);
end
$$;
