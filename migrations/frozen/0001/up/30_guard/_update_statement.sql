-- The update that fenced_update runs; $1 is the key, $2 the changes. LF010 not protected, unknown column, not a unique key.
-- Generic plans: its look-ups are worth planning once a session, not once a call.
create function fence._update_statement(p_table regclass, p_key jsonb, p_changes jsonb) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_changes text;
begin
  if not exists (
    select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where t.tgrelid = p_table and p.pronamespace = 'fence'::regnamespace)
  then
    perform fence._template_of(p_table);
  end if;
  perform fence._check_columns(p_table, 'key', p_key);
  perform fence._check_columns(p_table, 'changes', p_changes);
  select string_agg(format('%I = %s', c.attname, fence._value(p_table, c.attnum, '$2')), ', ') into v_changes
  from fence._columns_in(p_table, p_changes) c;
  return format('update %s as t set %s where %s', p_table, v_changes, fence._key_condition(p_table, p_key, 't'));
end
$$;
