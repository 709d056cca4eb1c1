-- Ends the backends that stand in the way of a dead claim: their transactions were accepted under p_resource's newest token, and its lease has been
-- revoked, released, closed by somebody's request after its expiry, or belongs to an older lineage. Whatever they do: idle, inside a COPY, with a
-- result that nobody reads. A lease that is not closed, expired or not, is left alone with a notice: revoke it first. Found by their label in
-- pg_locks, and only where they have locked leases, too. Returns how many have ended, within five seconds. For administrators.
-- A prepared transaction has no backend: a notice names it.
-- Locks: none. Codes: LF010 bad argument; 40001 for a snapshot that cannot tell; 42501 the schema's owner may not end one of them: nothing is ended then.
create function fence.evict(p_resource text) returns integer
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lease fence._lease;
  v_label bigint;
  v_pids integer[];
  v_pid integer;
  v_superuser boolean;
  v_backend record;
  v_gid text;
  v_until timestamptz;
  v_left bigint;
begin
  perform fence._check_resource(p_resource);
  perform fence._check_snapshot(p_resource);
  select l.* into v_lease from fence._lease l where l.resource = p_resource;
  if not found then
    return 0;
  elsif v_lease.secret_hash is not null and v_lease.lineage <> (select p.lineage from fence._present_lineage p) is not true then
    raise notice 'the lease of % is not over, nobody is evicted', quote_literal(p_resource)
      using hint = format('Revoke it first: select fence.revoke(%L, <reason>);', p_resource);
    return 0;
  end if;
  v_label := fence._label(p_resource, v_lease.token);

  v_pids := array(select distinct l.pid from fence._lease_lock l where l.label = v_label and l.pid <> pg_backend_pid());
  for v_backend in select a.pid, a.usesysid, a.usename from pg_stat_activity a where a.pid = any (v_pids) loop
    v_superuser := coalesce((select r.rolsuper from pg_roles r where r.oid = v_backend.usesysid), true);
    if not coalesce(pg_has_role(current_user, v_backend.usesysid, 'usage'), false)
      and (v_superuser or not pg_has_role(current_user, 'pg_signal_backend', 'usage'))
    then
      perform fence._raise('42501', format('%I may not end backend %s of %I', current_user, v_backend.pid, v_backend.usename),
        case when v_superuser then 'Only a superuser may end a superuser''s session. Nobody was evicted.'
          else 'The owner of schema fence lacks a grant. Nobody was evicted.' end,
        case when v_superuser then format('As a superuser: select pg_terminate_backend(%s);', v_backend.pid)
          else format('grant pg_signal_backend to %I;', current_user) end);
    end if;
  end loop;

  foreach v_pid in array v_pids loop
    -- Looked up again: it may have gone on to other work.
    if exists (select from fence._lease_lock l where l.label = v_label and l.pid = v_pid) then
      perform pg_terminate_backend(v_pid);
    end if;
  end loop;
  v_until := clock_timestamp() + interval '5 seconds';
  loop
    select count(distinct l.pid) into v_left from fence._lease_lock l where l.label = v_label and l.pid = any (v_pids);
    exit when v_left = 0 or clock_timestamp() > v_until;
    perform pg_sleep(0.01);
  end loop;
  for v_gid in select i.gid from fence.in_flight i where i.resource = p_resource and i.gid is not null loop
    raise notice 'a prepared transaction stands in the way of %, too', quote_literal(p_resource)
      using hint = format('rollback prepared %L;', v_gid);
  end loop;
  if cardinality(v_pids) > 0 then
    perform fence._record('evicted', p_resource, v_lease.token, v_lease.owner, jsonb_build_object('backends', to_jsonb(v_pids)));
  end if;
  return cardinality(v_pids) - v_left;
end
$$;

comment on function fence.evict(text) is
  'Ends the backends that stand in the way of a lease that is over. Returns how many. Needs pg_signal_backend for the schema''s owner. LF010, 42501.';
