-- Extends a lease that is still held: the new expiry is the clock, read after the lock, plus p_ttl (null: the ttl of the grant).
-- Neither waits for the holder's own open writes nor disturbs them. Call it in a transaction of its own.
-- Locks: the lease row FOR NO KEY UPDATE.
-- Codes: LF001 superseded or closed, LF002 expired (never revived), LF006 unknown or wrong secret, LF010 bad argument.
create function fence.renew(
  p_resource text,
  p_token bigint,
  p_secret text,
  p_ttl interval default null
) returns timestamptz
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_lease fence._lease;
  v_code text;
  v_expires_at timestamptz;
begin
  perform fence._check_claim(p_resource, p_token, p_secret);
  if p_ttl is not null then
    p_ttl := fence._ttl(p_ttl);
  end if;
  perform fence._begin_lease_change(coalesce(p_ttl, interval '30 seconds'));

  select l.* into v_lease from fence._lease l where l.resource = p_resource for no key update;
  if not found then
    perform fence._refuse_unknown(p_resource);
  end if;
  v_code := fence._verdict(v_lease.token, v_lease.secret_hash,
    v_lease.lineage = (select p.lineage from fence._present_lineage p) and fence._is_entered(v_lease.entered), p_token::text, p_secret);
  if v_code is not null then
    perform fence._refuse_claim(v_code, p_resource, p_token::text);
  end if;
  if v_lease.expires_at <= clock_timestamp() then
    perform fence._refuse_expired(p_resource, p_token::text);
  end if;
  update fence._lease l set expires_at = clock_timestamp() + coalesce(p_ttl, l.ttl)
  where l.resource = p_resource
  returning l.expires_at into v_expires_at;
  return v_expires_at;
end
$$;

comment on function fence.renew(text, bigint, text, interval) is
  'Extends a held lease and returns its new expiry. LF001, LF002 (an expired lease is not revived), LF006, LF010.';
