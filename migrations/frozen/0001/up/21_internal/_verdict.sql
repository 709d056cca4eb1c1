-- Why a claim is not the present one of its lease; null if it is. LF001: superseded, closed, or of an older lineage. LF006: not
-- the lease's secret, or a token that was never granted. LF009: the database has changed its identity, and an administrator has to confirm it.
create function fence._verdict(
  p_lease_token bigint,
  p_lease_secret_hash bytea,
  p_lineage_is_present boolean,
  p_claim_token text,
  p_claim_secret text
) returns text
language plpgsql
volatile
as $$
begin
  if fence._is_current(p_lease_token, p_lease_secret_hash, p_lineage_is_present, p_claim_token, p_claim_secret) then
    return null;
  elsif p_claim_token <> p_lease_token::text then
    if p_claim_token ~ '^[0-9]{1,19}$' and p_claim_token::numeric < p_lease_token then
      return 'LF001';
    end if;
    return 'LF006';
  elsif p_lease_secret_hash is null then
    return 'LF001';
  elsif p_lease_secret_hash <> pg_catalog.sha256(pg_catalog.convert_to(p_claim_secret, 'UTF8')) then
    return 'LF006';
  elsif fence._waits_for_operator((select c.kind from fence._identity_change() c)) then
    return 'LF009';
  end if;
  return 'LF001';
end
$$;
