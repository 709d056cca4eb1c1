-- Grants the lease on p_resource if it is free, with a new token above every earlier one of that resource.
-- One row. granted = false: the other columns describe the present holder; reason is 'held', or 'draining' where the lease
-- is over but a transaction of an old holder is still open. Not re-entrant. Call it in a transaction of its own.
-- Waits for no holder. An expired lease whose row is held is closed by the same call, so that no later write of its holder
-- passes and the next try gets in.
-- A row's lease is not granted while the resource that covers it is held ('held': it describes that one), and a covering one not while rows are being
-- written; it ends their leases.
-- Locks, in order: as fence._check_allowance; as fence._lineage; as fence._row_side; the lease row FOR UPDATE SKIP LOCKED; as fence._covering_side; where the row is held,
-- the row FOR NO KEY UPDATE SKIP LOCKED. A lease that is live when it is locked is left unlocked.
-- Codes: LF009 tokens exhausted, or the authority quarantined; LF010 bad argument, a claim of the caller's that the new token would make stale or that covers it, or, above READ COMMITTED, a covering resource or a rule with a number; 42501, 53400 not allowed (fence.allow); 55P03 where the lease table itself is locked, 40001 above READ COMMITTED.
create function fence.acquire(
  p_resource text,
  p_ttl interval default '30 seconds',
  p_owner text default null
) returns table (
  granted boolean,
  resource text,
  token bigint,
  secret text,
  owner text,
  expires_at timestamptz,
  reason text,
  retry_in interval
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  v_owner text := coalesce(p_owner, session_user);
  v_secret text := replace(gen_random_uuid()::text, '-', '');
  v_claims text := fence._claims();
  v_lineage bigint;
  v_lease fence._lease;
  v_before fence._lease;
  v_covering text;
  v_over record;
  v_covers boolean;
  v_claimed text;
  v_above bigint := 0;
  v_idle_timeout interval := nullif(fence._option_value('idle_timeout'), 'ttl');
begin
  perform fence._check_resource(p_resource);
  p_ttl := fence._ttl(p_ttl);
  if octet_length(v_owner) > 1024 then
    perform fence._raise('LF010', 'owner label too long', format('The label has %s bytes; the limit is 1024.', octet_length(v_owner)),
      'Use a short label such as host:pid.');
  end if;
  perform fence._begin_lease_change(p_ttl);
  perform fence._check_allowance(p_resource);
  v_lineage := fence._lineage();
  if fence._keeps_snapshot() then
    perform from fence._covering c where c.resource = '' for share;  -- 40001 for a snapshot that does not know what covers what
    if exists (select from fence._covering c where c.resource = p_resource) then
      perform fence._read_committed_only('a covering lease is granted',
        format('A row''s lease that was granted after the snapshot would stay open under %L.', p_resource));
    end if;
  end if;

  for v_covering in select distinct g.covering from fence._guard g where g.covering is not null and p_resource ~ g.pattern order by 1 loop
    if fence._claim_on(v_claims, v_covering) <> '' then
      perform fence._refuse_regrant(p_resource, v_covering);
    end if;
    select r.* into v_over from fence._row_side(v_covering, v_lineage) r;
    if v_over.reason is not null then
      return query select false, p_resource, (v_over.lease).token, null::text, (v_over.lease).owner, (v_over.lease).expires_at, v_over.reason,
        case v_over.reason when 'held' then greatest((v_over.lease).expires_at - clock_timestamp(), interval '1 millisecond')
          else interval '100 milliseconds' end;
      return;
    end if;
    v_above := greatest(v_above, (v_over.lease).token);
  end loop;

  loop
    select l.* into v_lease from fence._lease l where l.resource = p_resource;
    if not found then
      insert into fence._lease as l (resource, token, secret_hash, owner, granted_to, ttl, idle_timeout, acquired_at, expires_at, lineage)
      select p_resource, fence._next_token(v_above), sha256(convert_to(v_secret, 'UTF8')), v_owner, session_user, p_ttl, v_idle_timeout,
        c.now, c.now + p_ttl, v_lineage
      from (select clock_timestamp() as now) c
      on conflict do nothing
      returning l.* into v_lease;
      continue when not found;
      exit;
    end if;

    if not fence._is_live(v_lease, v_lineage) then
      begin  -- where the lease turns out to be held, its lock is given back
        select l.* into v_lease from fence._lease l where l.resource = p_resource for update skip locked;
        if found and not fence._is_live(v_lease, v_lineage) then
          v_covers := exists (select from fence._covering c where c.resource = p_resource);
          v_claimed := case
            when fence._claim_on(v_claims, p_resource) <> '' then p_resource
            when v_covers and v_claims is not null then
              (select r.resource from fence._rows_under(p_resource) r where fence._claim_on(v_claims, r.resource) <> '' limit 1)
          end;
          if v_claimed is not null then
            perform fence._refuse_regrant(p_resource, v_claimed);
          end if;
          if v_covers then
            select s.draining, s.above into v_over from fence._covering_side(p_resource) s;
            if v_over.draining then
              if v_lease.secret_hash is not null then
                perform fence._close(v_lease, 'expired');
              end if;
              return query select false, v_lease.resource, v_lease.token, null::text, v_lease.owner, v_lease.expires_at,
                'draining', interval '100 milliseconds';
              return;
            end if;
            v_above := v_over.above;
          end if;
          v_before := v_lease;
          update fence._lease l
          set token = fence._next_token(greatest(l.token, v_above)), secret_hash = sha256(convert_to(v_secret, 'UTF8')), owner = v_owner,
            granted_to = session_user, ttl = p_ttl, idle_timeout = v_idle_timeout, acquired_at = c.now, expires_at = c.now + p_ttl,
            lineage = v_lineage, closed_reason = null, entered = null
          from (select clock_timestamp() as now) c
          where l.resource = p_resource
          returning l.* into v_lease;
          if v_covers then
            update fence._covering c set token = v_lease.token, wanted_until = null where c.resource = p_resource;
          end if;
          exit;
        end if;
        if not found then
          -- Somebody holds the row: a guarded transaction that is still open, or a change of this lease in flight.
          select l.* into v_lease from fence._lease l where l.resource = p_resource for no key update skip locked;
          if not found then
            select l.* into v_lease from fence._lease l where l.resource = p_resource;
          elsif not fence._is_live(v_lease, v_lineage) and v_lease.secret_hash is not null then
            perform fence._close(v_lease, 'expired');
          end if;
          if not fence._is_live(v_lease, v_lineage) then
            return query select false, v_lease.resource, v_lease.token, null::text, v_lease.owner, v_lease.expires_at,
              'draining', interval '100 milliseconds';
            return;
          end if;
        end if;
        raise no_data_found;
      exception when no_data_found then
        null;
      end;
    end if;

    return query select false, v_lease.resource, v_lease.token, null::text, v_lease.owner, v_lease.expires_at,
      'held', greatest(v_lease.expires_at - clock_timestamp(), interval '1 millisecond');
    return;
  end loop;

  perform fence._record('granted', v_lease.resource, v_lease.token, v_lease.owner, jsonb_build_object('ttl', p_ttl)
    || case when v_before.secret_hash is null then '{}' else jsonb_build_object('took_over', jsonb_build_object('token', v_before.token::text,
      'owner', v_before.owner, 'expires_at', v_before.expires_at)) end);
  return query select true, v_lease.resource, v_lease.token, v_secret, v_lease.owner, v_lease.expires_at, null::text, null::interval;
end
$$;

comment on function fence.acquire(text, interval, text) is
  'Grants a lease with a new fencing token, or says who holds it. Waits for nobody. LF009, LF010.';
