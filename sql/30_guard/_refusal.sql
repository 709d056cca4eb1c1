-- What fence._check_lease would refuse a write to a resource with at this moment, or null: the codes alone, without a lock. A null resource
-- is a row whose key is null.
create function fence._refusal(p_resource text, p_expiry text) returns text
language plpgsql
volatile
as $$
declare
  v_claims text := fence._claims();
  v_claim text := fence._claim_on(v_claims, p_resource);
  v_lease fence._lease;
  v_code text;
begin
  if v_claims is null then
    return 'LF004';
  elsif coalesce(pg_catalog.split_part(v_claim, ' ', 1), '') = '' then
    return 'LF005';
  end if;
  select l.* into v_lease from fence._lease l where l.resource = p_resource;
  if not found then
    return 'LF006';
  end if;
  v_code := fence._verdict(v_lease.token, v_lease.secret_hash,
    v_lease.lineage = (select p.lineage from fence._present_lineage p)
      and fence._is_entered(v_lease.entered),
    pg_catalog.split_part(v_claim, ' ', 1), pg_catalog.split_part(v_claim, ' ', 2));
  if v_code is null and p_expiry = 'reject' and v_lease.expires_at <= pg_catalog.clock_timestamp() then
    v_code := 'LF002';
  end if;
  return v_code;
end
$$;
