-- Generic plans: its look-ups are worth planning once a session, not once a call.
-- The update that fenced_update runs; $1 is the key, $2 the changes. LF010 not protected, unknown column, not a unique key.
create function fence._update_statement(p_table regclass, p_key jsonb, p_changes jsonb) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_columns text;
  v_values text;
begin
  perform fence._template_of(p_table);
  perform fence._check_columns(p_table, 'key', p_key);
  perform fence._check_columns(p_table, 'changes', p_changes);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum), string_agg(format('v.%I', a.attname), ', ' order by a.attnum)
  into v_columns, v_values
  from pg_attribute a
  where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and p_changes ? a.attname::text;
  return format('update %s as t set (%s) = (select %s from %s v) where %s',
    p_table, v_columns, v_values, fence._record_source(p_table, p_changes, '$2'), fence._key_condition(p_table, p_key, 't'));
end
$$;
