-- The lock, and then the comparison: holds the lease of p_resource for the rest of the transaction and raises unless the
-- claim is its present one. FOR KEY SHARE, because the token is a key column: a takeover waits for this transaction, a
-- renewal does not; a snapshot older than a takeover gets 40001. The clock is left to the caller, who must read it after this.
-- Locks: the lease row FOR KEY SHARE. Codes: LF001, LF006, LF010; 40001 for a snapshot too old to decide.
create function fence._verify(
  p_resource text,
  p_token text,
  p_secret text,
  p_table oid default null,
  out expires_at timestamptz,
  out ttl interval
)
language plpgsql
volatile
as $$
declare
  v_token bigint;
  v_secret_hash bytea;
  v_lineage_is_present boolean;
begin
  select l.token, l.secret_hash, l.lineage = a.lineage, l.expires_at, l.ttl
  into v_token, v_secret_hash, v_lineage_is_present, expires_at, ttl
  from fence._lease l cross join fence._authority a
  where l.resource = p_resource
  for key share of l;
  if fence._is_current(v_token, v_secret_hash, v_lineage_is_present, p_token, p_secret) is not true then
    if v_token is null then
      perform fence._refuse_unknown(p_resource, p_table);
    end if;
    perform fence._refuse_claim(fence._verdict(v_token, v_secret_hash, v_lineage_is_present, p_token, p_secret),
      p_resource, p_token, p_table);
  end if;
end
$$;
