-- The part of unexempt that needs the schema owner's rights. No statement is left to run. The caller is fence._change_guard. Locks: the exemption's row.
-- Codes: LF010 not exempt, a part of a tree; 42501 not the table's owner.
create function fence._end_exemption(p_table regclass, p_role regrole) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role name := (select r.rolname from pg_roles r where r.oid = p_role);
begin
  perform fence._check_root(p_table, 'unexempt', format(', %L', p_role));
  perform fence._check_owner(p_table);
  delete from fence._exemption e where e.guard = (fence._guard_of(p_table)).id and e.role = v_role;
  if not found then
    perform fence._raise('LF010', format('%s has no exemption on %s', coalesce(p_role::text, 'null'), p_table), 'There is nothing to end.',
      'See fence.audit() for those that last.', p_table);
  end if;
  perform fence._record('exemption ended', null, null, null, jsonb_build_object('table', p_table::text, 'role', v_role));
end
$$;
