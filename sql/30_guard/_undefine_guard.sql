-- The part of unprotect that needs the schema owner's rights: takes the guard out of the registry and returns the
-- statements that drop its triggers; those are the table owner's to run. Then its function is unused. The caller is
-- fence._change_guard. Locks: the guard's row, which waits for who exempts a role at this moment. Codes: LF010 not protected (any more), or another table has the same guard (a detached partition); 42501 not the table's owner.
create function fence._undefine_guard(p_table regclass) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
begin
  perform fence._template_of(p_table);
  perform fence._check_root(p_table, 'unprotect');
  perform fence._check_owner(p_table);
  perform fence._check_alone(v_guard, p_table, 'The triggers there would go on with a guard that nobody knows: what was counted, exemptions and the covering resource '
    || 'would be forgotten.');
  perform fence._record('unprotected', null, null, null, to_jsonb(v_guard));
  perform fence._forget_guard(v_guard.id);
  return query
    select format('drop trigger %I on %s', t.tgname, m.relid::regclass)
    from fence._members(p_table) m join pg_trigger t on t.tgrelid = m.relid
    where t.tgfoid = fence._guard_function(v_guard.id) and t.tgparentid = 0
    order by m.depth, m.relid;
end
$$;
