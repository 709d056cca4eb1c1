-- Raises a pyfence error with every field that clients read: code, detail, hint, schema, table, constraint (the code again).
-- What a guard refuses is logged too, in a line for machines; and where the guard was made so, it is raised as P0004, which no
-- "exception when others" catches.
create function fence._raise(
  p_code text,
  p_message text,
  p_detail text,
  p_hint text,
  p_table oid default null
) returns void
language plpgsql
stable
as $$
declare
  v_schema text := 'fence';
  v_table text := '';
  v_errcode text := p_code;
  v_guard fence._guard;
begin
  select n.nspname, c.relname into v_schema, v_table
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where c.oid = p_table;
  if p_code in ('LF001', 'LF002', 'LF004', 'LF005', 'LF006', 'LF007', 'LF008', 'LF009', 'LF013') then
    v_guard := fence._guard_of(p_table);
    if v_guard.mode = 'enforce' then
      perform fence._log('refused', p_code, p_table, null);
      v_errcode := case when v_guard.uncatchable then 'P0004' else p_code end;
    end if;
  end if;
  raise exception using
    errcode = v_errcode,
    message = p_message,
    detail = p_detail,
    hint = p_hint,
    schema = coalesce(v_schema, 'fence'),
    table = coalesce(v_table, ''),
    constraint = p_code;
end
$$;
