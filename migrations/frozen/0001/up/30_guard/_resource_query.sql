-- The query behind resource_for; $1 is the key. LF010 not protected, unknown column, not a unique key.
create function fence._resource_query(p_table regclass, p_key jsonb) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard;
  v_rows text;
begin
  perform fence._template_of(p_table);
  v_guard := fence._guard_of(p_table);
  perform fence._check_columns(p_table, 'key', p_key);
  if v_guard.scope = 'table' then
    return format('select %L', fence._table_resource(v_guard));
  elsif exists (select from fence._key_columns(p_table, v_guard.template) k where not p_key ? k.attname) then
    v_rows := format('%s r where %s', p_table, fence._key_condition(p_table, p_key, 'r'));
  else
    select format('(select %s) r', string_agg(format('%s as %I', fence._value(p_table, c.attnum, '$1'), c.attname), ', ')) into v_rows
    from fence._columns_in(p_table, p_key) c;
  end if;
  return fence._name_query(v_guard, p_table, v_rows);
end
$$;
