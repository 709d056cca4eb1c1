-- Lets the sessions of a role (session_user) write a protected table without a claim, until a moment: their writes are noted in fence.violations, not
-- refused. For the one job that is still being changed, and for the night when something must run. Ends by itself; said again, it replaces what was said before.
-- For who may act as the table's owner. The exemption is in the history, and in the audit while it lasts.
-- Locks: the guard FOR KEY SHARE, and its own row. Codes: LF010 bad argument, not protected, a part of a tree, another table has the same guard, above READ COMMITTED; 42501 not the owner.
create function fence.exempt(p_table regclass, p_role regrole, p_until timestamptz, p_reason text) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_guard fence._guard;
  v_role name := (select r.rolname from pg_roles r where r.oid = p_role);
begin
  perform fence._read_committed_only('an exemption is given', 'It might be from a guard that a table has no longer.', p_table);
  loop
    perform fence._template_of(p_table);
    v_guard := fence._guard_of(p_table);
    perform from fence._guard g where g.id = v_guard.id for key share;
    exit when found and (fence._guard_of(p_table)).id = v_guard.id;  -- else it has been unprotected at this moment, or got another guard
  end loop;
  perform fence._check_root(p_table, 'exempt', format(', %L, %L, %L', p_role, p_until, p_reason));
  perform fence._check_owner(p_table);
  perform fence._check_alone(v_guard, p_table, 'The exemption would be from both.');
  if v_role is null then
    perform fence._raise('LF010', 'an exemption needs a role', format('The role is %s.', coalesce(p_role::text, 'null')), 'Name the role that the job logs in as.');
  elsif p_until is null or p_until = 'infinity' or p_until <= clock_timestamp() then
    perform fence._raise('LF010', 'an exemption needs an end', format('It would end at %s.', coalesce(p_until::text, 'null')),
      format('Say until when: select fence.exempt(%L, %L, now() + interval ''8 hours'', ''why'');', p_table, p_role));
  end if;
  perform fence._check_reason(p_reason, format('select fence.exempt(%L, %L, %L, ''still being changed'');', p_table, p_role, p_until));
  insert into fence._exemption as e (guard, role, until, reason, granted_at, granted_by)
  values (v_guard.id, v_role, p_until, p_reason, clock_timestamp(), session_user)
  on conflict (guard, role) do update
  set until = excluded.until, reason = excluded.reason, granted_at = excluded.granted_at, granted_by = excluded.granted_by;
  perform fence._record('exempted', null, null, null,
    jsonb_build_object('table', p_table::text, 'role', v_role, 'until', p_until, 'reason', p_reason));
end
$$;

comment on function fence.exempt(regclass, regrole, timestamptz, text) is
  'Lets the sessions of a role write a protected table without a claim until a moment; their writes are noted. LF010, 42501.';
