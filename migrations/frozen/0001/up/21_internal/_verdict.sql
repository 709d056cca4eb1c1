-- The comparison: is a claim the present one of its lease? The one place that decides it; called after the row is locked.
-- Null: yes, as far as the clock does not matter. LF001: superseded, closed, or of an older lineage. LF006: not its secret,
-- or a token that was never granted. The claim's token comes as text: a claim is a client's setting and may hold anything.
create function fence._verdict(
  p_lease_token bigint,
  p_lease_secret_hash bytea,
  p_lineage_is_present boolean,
  p_claim_token text,
  p_claim_secret text
) returns text
language sql
stable
as $$
  select case
    when p_claim_token is distinct from p_lease_token::text then
      case when p_claim_token ~ '^[0-9]{1,19}$' and p_claim_token::numeric < p_lease_token then 'LF001' else 'LF006' end
    when p_lease_secret_hash is null then 'LF001'
    when p_lease_secret_hash is distinct from pg_catalog.sha256(pg_catalog.convert_to(p_claim_secret, 'UTF8')) then 'LF006'
    when p_lineage_is_present is not true then 'LF001'
  end
$$;
