-- The guard: true if this transaction holds the newest token of every resource in p_names; raises at the first, in name
-- order, that it does not. A null among the names is a row whose key is null.
-- Locks: the lease rows FOR KEY SHARE, in name order (fence.present has locked them before).
-- Codes: LF004 no claim at all, LF005 a resource without a claim or a null key, LF001 / LF006 (fence._verify), LF002 expired.
create function fence._check_claims(p_table oid, p_names text[], p_expiry text) returns boolean
language plpgsql
volatile
as $$
declare
  v_claims text := fence._claims();
  v_name text;
  v_claim text;
  v_lease record;
begin
  if v_claims is null then
    perform fence._refuse_unclaimed(p_table);
  end if;
  if pg_catalog.cardinality(p_names) > 1 then
    p_names := array(select n.name from pg_catalog.unnest(p_names) n (name) order by n.name collate "C" nulls first);
  end if;
  foreach v_name in array p_names loop
    v_claim := fence._claim_on(v_claims, v_name);
    if v_claim = '' or v_claim is null then
      perform fence._refuse_uncovered(p_table, v_name);
    end if;
    v_lease := fence._verify(v_name, pg_catalog.split_part(v_claim, ' ', 1), pg_catalog.split_part(v_claim, ' ', 2), p_table);
    if p_expiry <> 'until_superseded' and v_lease.expires_at <= pg_catalog.clock_timestamp() then
      perform fence._refuse_expired(v_name, pg_catalog.split_part(v_claim, ' ', 1), p_table);
    end if;
  end loop;
  return true;
end
$$;
