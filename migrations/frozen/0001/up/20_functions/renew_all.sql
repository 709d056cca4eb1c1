-- fence.renew for many leases in one round trip. Never fails for one of them: code is null where the lease was renewed, else
-- what renew would have raised (LF001, LF002, LF006, LF010), or 55P03 where the lease is being changed right now: try again.
-- Locks: the lease rows whose claim is proved, FOR NO KEY UPDATE SKIP LOCKED: it waits for none. Codes: LF010 arrays of unequal length, bad ttl.
create function fence.renew_all(
  p_resources text[],
  p_tokens bigint[],
  p_secrets text[],
  p_ttl interval
) returns table (resource text, expires_at timestamptz, code text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
#variable_conflict use_column
begin
  perform fence._check_claim_arrays(p_resources, p_tokens, p_secrets);
  if p_ttl is not null then
    p_ttl := fence._ttl(p_ttl);
  end if;
  perform fence._begin_lease_change(coalesce(p_ttl, interval '30 seconds'));

  return query
  with asked as (
    select q.resource, q.token, q.secret, q.ordinal
    from unnest(p_resources, p_tokens, p_secrets) with ordinality q (resource, token, secret, ordinal)
  ), locked as materialized (
    select q.ordinal, l.expires_at
    from asked q
    join fence._lease l on l.resource = q.resource
    where fence._is_current(l.token, l.secret_hash,
      l.lineage = (select p.lineage from fence._present_lineage p) and fence._is_entered(l.entered), q.token::text, q.secret)
    for no key update of l skip locked
  ), judged as materialized (
    select q.resource, q.ordinal,
      case
        when q.resource is null or q.token is null or q.secret is null then 'LF010'
        when l.resource is null then 'LF006'
        when k.ordinal is null then coalesce(
          fence._verdict(l.token, l.secret_hash, l.lineage = (select p.lineage from fence._present_lineage p) and fence._is_entered(l.entered),
            q.token::text, q.secret), '55P03')
        when k.expires_at <= clock_timestamp() then 'LF002'
      end as code
    from asked q
    left join fence._lease l on l.resource = q.resource
    left join locked k on k.ordinal = q.ordinal
  ), renewed as (
    update fence._lease l set expires_at = clock_timestamp() + coalesce(p_ttl, l.ttl)
    where l.resource in (select j.resource from judged j where j.code is null)
    returning l.resource, l.expires_at
  )
  select j.resource, r.expires_at, j.code
  from judged j left join renewed r on r.resource = j.resource and j.code is null
  order by j.ordinal;
end
$$;

comment on function fence.renew_all(text[], bigint[], text[], interval) is
  'Renews many leases in one call; a row for each, code null where it was renewed. LF010 for unequal arrays.';
