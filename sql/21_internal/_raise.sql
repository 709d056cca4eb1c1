-- Raises a pyfence error with every field that clients read: code, detail, hint, schema, table, constraint (the code again).
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
begin
  select n.nspname, c.relname into v_schema, v_table
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where c.oid = p_table;
  raise exception using
    errcode = p_code,
    message = p_message,
    detail = p_detail,
    hint = p_hint,
    schema = coalesce(v_schema, 'fence'),
    table = coalesce(v_table, ''),
    constraint = p_code;
end
$$;
