-- LF013: a column of the guard's key was renamed or dropped.
create function fence._refuse_broken(p_table oid, p_problem text) returns void
language plpgsql
stable
as $$
declare
  v_label text := p_table::regclass;
  v_message text := pg_catalog.format('the guard on %s is broken', v_label);
  v_hint text := pg_catalog.format('Protect the table again with a template over its present columns: select fence.protect(%L, ''...'');',
    fence._tree_root(p_table)::regclass);
begin
  if fence._is_apply_worker() then
    return;
  end if;
  perform fence._raise('LF013', v_message, pg_catalog.format('Its key cannot be read: %s.', p_problem), v_hint, p_table);
end
$$;
