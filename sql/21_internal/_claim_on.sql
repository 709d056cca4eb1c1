-- The newest claim on a resource within the claims of a transaction, '<token> <secret> <sequence>' and what follows it; '' for none.
create function fence._claim_on(p_claims text, p_resource text) returns text
language sql
stable
as $$
  select pg_catalog.split_part(p_claims, E'\n' || fence._claim_key(p_resource) || ' ', 2)
$$;
