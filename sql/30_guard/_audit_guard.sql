-- The findings about one guard and the table it sits on, or should. What the guard is made from may not fit its table any more, and the table may go
-- while we look, or be locked, which is waited for a second: that is a finding of its own, and the rest is said all the same.
create function fence._audit_guard(p_guard fence._guard)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
set lock_timeout = '1s'  -- pg_get_triggerdef opens the table
as $$
declare
  v_table oid;
begin
  v_table := fence._guarded_table(p_guard);
  return query select a.* from fence._audit_place(p_guard, v_table) a;
  if v_table is null then
    return;
  end if;
  return query select a.* from fence._audit_policy(p_guard, v_table) a;
  return query select a.* from fence._audit_surroundings(p_guard, v_table) a;
  return query select a.* from fence._audit_table_rights(v_table) a;
  if fence._tree_root(v_table) <> v_table then  -- it is in somebody else's tree, for which its triggers were not made
    return;
  end if;
  begin
    perform fence._check_template(p_guard, v_table);
    perform fence._check_token_column(p_guard, v_table);
  exception when sqlstate 'LF010' then
    return query select 'error', 'template-broken', v_table::regclass::text,
      pg_catalog.format('The guard was made for %L%s, which does not fit the table any more (%s). Writes are refused with LF013, or not checked.',
        p_guard.template, coalesce(' and token column ' || pg_catalog.quote_ident(p_guard.token_column), ''), sqlerrm),
      pg_catalog.format('Protect it again with a template over its present columns, as in fence.protect(%L, ''...'').', v_table::regclass);
    return;
  end;
  return query select a.* from fence._audit_triggers(p_guard, v_table) a;
  return query select a.* from fence._audit_guard_function(p_guard, v_table) a;
exception when others then
  return query select case sqlstate when '55P03' then 'warning' else 'error' end, 'guard-unreadable', pg_catalog.format('%I.%I', p_guard.schema_name, p_guard.table_name),
    pg_catalog.format('The guard could not be examined: %s (%s).', sqlerrm, sqlstate), 'Look at the table, and run the audit again.';
end
$$;
