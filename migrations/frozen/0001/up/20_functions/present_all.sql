-- fence.present for several claims in one round trip, locked in name order whatever the order of the arrays: two transactions
-- that present the same resources cannot deadlock. All or nothing.
-- Locks: as present, for one after the other in name order. Codes: as present; LF010 arrays of unequal length.
create function fence.present_all(
  p_resources text[],
  p_tokens bigint[],
  p_secrets text[],
  p_sequences bigint[] default null
) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_claim record;
  v_claims text := fence._claim_lines();
  v_resource text;
  v_set text;
begin
  perform fence._check_claim_arrays(p_resources, p_tokens, p_secrets);
  if pg_catalog.cardinality(p_sequences) <> pg_catalog.cardinality(p_resources) then
    perform fence._raise('LF010', 'the arrays of the claims do not fit together',
      pg_catalog.format('%s resources, %s sequences.', pg_catalog.cardinality(p_resources), pg_catalog.cardinality(p_sequences)),
      'Pass one sequence for each claim, null where it has none, or no array.');
  end if;
  for v_claim in
    select q.resource, q.token, q.secret, q.sequence
    from unnest(p_resources, p_tokens, p_secrets, p_sequences) q (resource, token, secret, sequence)
  loop
    perform fence._check_claim(v_claim.resource, v_claim.token, v_claim.secret);
    v_claims := fence._add_claim(v_claims, v_claim.resource, v_claim.token, v_claim.secret, v_claim.sequence);
  end loop;
  v_set := set_config('fence.claims', coalesce(v_claims, ''), true);
  for v_resource in select q.resource from unnest(p_resources) q (resource) order by q.resource collate "C" loop
    v_set := fence._hold_claim(v_resource);
  end loop;
end
$$;

comment on function fence.present_all(text[], bigint[], text[], bigint[]) is
  'Presents several claims, locked in name order. All or nothing. LF001, LF006, LF010.';
