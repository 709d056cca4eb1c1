-- Lets a role acquire the names of a pattern (* stands for any run of characters), p_max_leases of them at a time (null: any number), and, from its first
-- rule on, no other name. Its members, too. Said again for the same pattern, it replaces the number; 0 takes the rule away. Leases that are held
-- stay, and a transaction above READ COMMITTED with an older snapshot goes by the older rules. For administrators. Locks: none but its own row. Codes: LF010 bad argument.
create function fence.allow(p_role regrole, p_pattern text, p_max_leases integer default null) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_role name := (select r.rolname from pg_roles r where r.oid = p_role);
begin
  if v_role is null then
    perform fence._raise('LF010', 'a rule needs a role', format('The role is %s.', coalesce(p_role::text, 'null')), 'Name a role that exists.');
  elsif coalesce(p_pattern, '') = '' or octet_length(p_pattern) > 1024 then
    perform fence._raise('LF010', 'a rule needs a pattern', 'It is null, empty or longer than 1024 bytes.',
      format('Pass names with * for any run of characters: select fence.allow(%L, ''report:*'');', p_role));
  elsif p_max_leases < 0 then
    perform fence._raise('LF010', format('%s leases cannot be held', p_max_leases), 'The number is negative.',
      'Pass how many at the most, null for any number, or 0 to take the rule away.');
  elsif p_max_leases = 0 then
    delete from fence._allowance a where a.role = v_role and a.pattern = p_pattern;
    if not found then
      perform fence._raise('LF010', format('%I has no rule %L', v_role, p_pattern), 'There is nothing to take away.',
        'See them: select * from fence.allowances;');
    end if;
  else
    insert into fence._allowance as a (role, pattern, expression, max_leases, allowed_at, allowed_by)
    values (v_role, p_pattern, fence._glob_expression(p_pattern), p_max_leases, clock_timestamp(), session_user)
    on conflict (role, pattern) do update
    set max_leases = excluded.max_leases, allowed_at = excluded.allowed_at, allowed_by = excluded.allowed_by;
  end if;
  perform fence._record('allowed', null, null, null, jsonb_build_object('role', v_role, 'pattern', p_pattern, 'max_leases', p_max_leases));
end
$$;

comment on function fence.allow(regrole, text, integer) is
  'Lets a role acquire the names of a pattern and, from its first rule on, no other; 0 leases takes a rule away. LF010.';
