-- LF010 unless the arrays of several claims are one-dimensional and of one length.
create function fence._check_claim_arrays(p_resources text[], p_tokens bigint[], p_secrets text[]) returns void
language plpgsql
stable
as $$
begin
  if p_resources is null or p_tokens is null or p_secrets is null
    or greatest(pg_catalog.array_ndims(p_resources), pg_catalog.array_ndims(p_tokens), pg_catalog.array_ndims(p_secrets)) > 1
    or pg_catalog.cardinality(p_tokens) <> pg_catalog.cardinality(p_resources)
    or pg_catalog.cardinality(p_secrets) <> pg_catalog.cardinality(p_resources)
  then
    perform fence._raise('LF010', 'the arrays of the claims do not fit together',
      pg_catalog.format('%s resources, %s tokens, %s secrets.', coalesce(pg_catalog.cardinality(p_resources)::text, 'null'),
        coalesce(pg_catalog.cardinality(p_tokens)::text, 'null'), coalesce(pg_catalog.cardinality(p_secrets)::text, 'null')),
      'Pass one resource, one token and one secret for each claim, in the same order.');
  end if;
end
$$;
