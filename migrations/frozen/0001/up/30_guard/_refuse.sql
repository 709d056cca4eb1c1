-- Why fence._check_lease did not accept a claim on a resource, in words; the lease row is locked by now. Raises, unless the writer is
-- a logical replication worker.
create function fence._refuse(p_table oid, p_resource text) returns void
language plpgsql
volatile
as $$
declare
  v_claims text := fence._claims();
  v_token text := pg_catalog.split_part(fence._claim_on(v_claims, p_resource), ' ', 1);
  v_secret text := pg_catalog.split_part(fence._claim_on(v_claims, p_resource), ' ', 2);
  v_lease fence._lease;
  v_code text;
begin
  if fence._is_apply_worker() then
    return;
  end if;
  if v_claims is null then
    perform fence._refuse_unclaimed(p_table);
  elsif coalesce(v_token, '') = '' then
    perform fence._refuse_uncovered(p_table, p_resource);
  end if;
  select l.* into v_lease from fence._lease l where l.resource = p_resource;
  if not found then
    perform fence._refuse_unknown(p_resource, p_table);
  end if;
  v_code := fence._verdict(v_lease.token, v_lease.secret_hash,
    v_lease.lineage = (select p.lineage from fence._present_lineage p)
      and coalesce(v_lease.entered = pg_catalog.pg_current_xact_id_if_assigned(), v_lease.entered is null),
    v_token, v_secret);
  if v_code is not null then
    perform fence._refuse_claim(v_code, p_resource, v_token, p_table);
  end if;
  perform fence._refuse_expired(p_resource, v_token, p_table);
end
$$;
