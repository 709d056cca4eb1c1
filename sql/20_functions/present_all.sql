-- fence.present for several claims in one round trip, locked in name order whatever the order of the arrays: two transactions
-- that present the same resources cannot deadlock. All or nothing.
-- Locks: the lease rows FOR KEY SHARE, in name order. Codes: as present; LF010 arrays of unequal length.
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
  v_ttl interval;
  v_claims text := fence._claims();
  v_set text;
begin
  perform fence._check_claim_arrays(p_resources, p_tokens, p_secrets);
  if p_sequences is not null then
    perform fence._not_yet('p_sequences');
  end if;
  for v_claim in
    select q.resource, q.token, q.secret, q.sequence
    from unnest(p_resources, p_tokens, p_secrets, p_sequences) q (resource, token, secret, sequence)
    order by q.resource collate "C"
  loop
    perform fence._check_claim(v_claim.resource, v_claim.token, v_claim.secret);
    v_ttl := least(v_ttl, (fence._verify(v_claim.resource, v_claim.token::text, v_claim.secret)).ttl);
    v_claims := fence._add_claim(v_claims, v_claim.resource, v_claim.token, v_claim.secret, v_claim.sequence);
  end loop;
  if v_ttl is not null then
    v_set := set_config('fence.claims', v_claims, true);
    v_set := fence._bound_idle(v_ttl);
  end if;
end
$$;

comment on function fence.present_all(text[], bigint[], text[], bigint[]) is
  'Presents several claims, locked in name order. All or nothing. LF001, LF006, LF010.';
