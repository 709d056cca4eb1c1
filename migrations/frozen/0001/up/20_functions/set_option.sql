-- Changes an option of this database; fence.options shows them. For administrators.
-- Locks: the option's row. Code: LF010 no such option, no such value, no reason.
create function fence.set_option(p_name text, p_value text, p_reason text) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_option fence._option;
begin
  select o.* into v_option from fence._option o where o.name = p_name for update;
  if not found then
    perform fence._raise('LF010', format('there is no option %L', p_name),
      format('The options are %s.', (select string_agg(o.name, ', ' order by o.name) from fence._option o)),
      'Look at them: select * from fence.options;');
  elsif p_value is null or p_value <> all (v_option.allowed) or v_option.allowed is null and not fence._is_idle_timeout(p_value) then
    perform fence._raise('LF010', format('%L is no value of option %s', p_value, p_name),
      format('It may be %s.', coalesce(array_to_string(v_option.allowed, ' or '), 'ttl, or a length from 1 millisecond to 1 day')),
      'Look at them: select * from fence.options;');
  end if;
  perform fence._check_reason(p_reason, format('select fence.set_option(%L, %L, ''agreed with operations'');', p_name, p_value));
  update fence._option o set value = p_value, reason = p_reason, changed_at = clock_timestamp(), changed_by = session_user
  where o.name = p_name;
  perform fence._record('option', null, null, null,
    jsonb_build_object('option', p_name, 'value', p_value, 'was', v_option.value, 'reason', p_reason));
end
$$;

comment on function fence.set_option(text, text, text) is 'Changes an option of this database, with a reason. LF010.';
