-- Locks the leases of the claims in name order, compares, and records the claims for this transaction.
-- The setting is local and bound to the transaction's id: it cannot outlive the transaction, whatever a pool does.
create function fence._present(
  p_resources text[],
  p_tokens bigint[],
  p_secrets text[],
  p_sequences bigint[]
) returns void
language plpgsql
volatile
as $$
declare
  v_xact text := pg_catalog.pg_current_xact_id()::text;
  v_claims text := pg_catalog.current_setting('fence.claims', true);
  v_found integer := 0;
  v_ttl interval;
  v_claim record;
begin
  if pg_catalog.split_part(coalesce(v_claims, ''), E'\n', 1) <> v_xact then
    v_claims := v_xact;
  end if;
  for v_claim in
    select l as lease, q.token::text as token, q.secret, q.sequence, a.lineage as authority_lineage
    from unnest(p_resources, p_tokens, p_secrets, p_sequences) q (resource, token, secret, sequence)
    join fence._lease l on l.resource = q.resource
    cross join fence._authority a
    order by l.resource
    for key share of l
  loop
    declare
      v_lease fence._lease := v_claim.lease;
      v_code text := fence._verdict(v_lease, v_claim.authority_lineage, v_claim.token, v_claim.secret);
      v_item text := pg_catalog.format(E'\n%s %s %s %s',
        fence._hex(v_lease.resource), v_claim.token, v_claim.secret, coalesce(v_claim.sequence::text, '-'));
    begin
      if v_code is not null then
        perform fence._refuse_claim(v_code, v_lease, v_claim.token);
      end if;
      v_found := v_found + 1;
      v_ttl := least(v_ttl, v_lease.ttl);
      v_claims := fence._without_claim(v_claims, v_lease.resource) || v_item;
    end;
  end loop;
  if v_found < pg_catalog.cardinality(p_resources) then
    perform fence._refuse_unknown(q.resource)
    from pg_catalog.unnest(p_resources) q (resource)
    where not exists (select from fence._lease l where l.resource = q.resource)
    order by q.resource
    limit 1;
  end if;
  perform pg_catalog.set_config('fence.claims', v_claims, true);
  perform fence._bound_idle(v_ttl);
end
$$;
