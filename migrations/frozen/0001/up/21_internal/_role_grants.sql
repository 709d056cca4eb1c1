-- The statements that give a role what its kind of use needs, and nothing else. The one list of who may do what:
--   client   hold leases and write under them        admin    protect tables, end leases; everything a monitor sees
--   monitor  the views
-- Invoker functions and views call some private functions with their caller's rights; those are granted along with them.
create function fence._role_grants(p_role regrole, p_kind text) returns setof text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_reader text[] := array['resource_name', 'resource_for', 'schema_version', '_resource_query', '_encode', '_raise'];
  v_client text[] := v_reader || array['acquire', 'enter', 'renew', 'renew_all', 'release', 'present', 'present_all', 'fenced_update',
    '_update_statement', '_finished', '_acquire_in_turn', '_decline'];
  v_monitor text[] := v_reader || array['audit', '_audit', '_audit_sessions', '_guard_state', '_audit_migrations', '_recorded_revision',
    '_authority_state', '_label', '_current_timeline', '_current_database', '_is_accepted_restart'];
  v_admin text[] := v_monitor || array['revoke', 'evict', 'confirm_lineage', 'raise_token_floor', 'set_option', 'allow', 'prune', 'protect', 'set_mode', 'unprotect',
    'exempt', 'unexempt', '_end_exemption', 'repair', '_repairs', '_rearm', '_check_choice', '_check_table', '_lock_table', '_stop_vacuum', '_members', '_change_guard', '_read_committed_only', '_keeps_snapshot',
    '_define_guard', '_undefine_guard', '_drop_unused_functions', '_template_of', '_null_keys', '_refuse_null_keys',
    '_plan_protect'];
begin
  if p_kind is null or p_kind not in ('client', 'admin', 'monitor') then
    perform fence._raise('LF010', format('there is no role kind %L', p_kind), 'The kinds are client, admin and monitor.',
      'Name one of them.');
  end if;
  return next format('grant usage on schema fence to %s', p_role);
  return query
    select format('grant execute on function %s to %s', p.oid::regprocedure, p_role)
    from pg_proc p
    where p.pronamespace = 'fence'::regnamespace
      and p.proname = any (case p_kind when 'client' then v_client when 'admin' then v_admin else v_monitor end)
    order by p.proname;
  if p_kind in ('admin', 'monitor') then
    return query
      select format('grant select on %s to %s', c.oid::regclass, p_role)
      from pg_class c
      where c.relnamespace = 'fence'::regnamespace and c.relkind = 'v' and c.relname !~ '^_'
      order by c.relname;
  end if;
end
$$;
