-- The comparison: is a claim the present one of its lease, as far as the clock does not matter? The one place that decides it, called
-- after the lease row is locked. Null counts as no. A claim's token comes as text: it was a client's setting and may hold anything.
create function fence._is_current(
  p_lease_token bigint,
  p_lease_secret_hash bytea,
  p_lineage_is_present boolean,
  p_claim_token text,
  p_claim_secret text
) returns boolean
language sql
stable
as $$
  select p_claim_token = p_lease_token::text
    and p_lease_secret_hash = pg_catalog.sha256(pg_catalog.convert_to(p_claim_secret, 'UTF8'))
    and p_lineage_is_present
$$;
