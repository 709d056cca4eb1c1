-- The guard, and the one place where a claim is accepted: this transaction holds the newest token of p_resource, of this database's
-- present lineage, or an error is raised. Three steps, in this order: lock the lease, compare, look at the clock. FOR KEY SHARE, because the token is a key
-- column: a takeover waits for this transaction, a renewal does not, and a snapshot older than a takeover gets 40001.
-- fence.present runs the same check early. p_expiry 'until_superseded' leaves the clock out. A null resource is a row whose
-- key is null. Returns the ttl of the lease; null where the claim was not accepted and the writer may pass all the same; bounds the transaction's idling by it where claims came with the connection, as present does.
-- Locks: the lease row FOR KEY SHARE, until the transaction ends; as a label for fence._lease_lock, which nobody waits for, an advisory lock.
-- Codes: LF004 no claim at all, LF005 no claim on this resource or a null key, LF001, LF002, LF006, LF009 (fence._verdict); 40001 for a
-- snapshot too old to decide.
create function fence._check_lease(p_table oid, p_resource text, p_expiry text) returns interval
language plpgsql
volatile
as $$
declare
  v_claim text := fence._claim_on(fence._claims(), p_resource);
  v_token bigint;
  v_secret_hash bytea;
  v_lineage_is_present boolean;
  v_expires_at timestamptz;
  v_idle interval;
  v_labelled boolean;
begin
  if coalesce(v_claim, '') = '' then
    perform fence._refuse(p_table, p_resource);
    return null;
  end if;
  select l.token, l.secret_hash,
    l.lineage = (select p.lineage from fence._present_lineage p)
      and fence._is_entered(l.entered), l.expires_at,
    coalesce(l.idle_timeout, l.ttl)
  into v_token, v_secret_hash, v_lineage_is_present, v_expires_at, v_idle
  from fence._lease l
  where l.resource = p_resource
  for key share of l;

  if fence._is_current(v_token, v_secret_hash, v_lineage_is_present,
      pg_catalog.split_part(v_claim, ' ', 1), pg_catalog.split_part(v_claim, ' ', 2))
    and (p_expiry = 'until_superseded' or v_expires_at > pg_catalog.clock_timestamp())
  then
    if coalesce(pg_catalog.current_setting('fence.claim', true), '') <> '' then
      perform fence._bound_idle(v_idle);
    end if;
    -- The claims presented before this one stand behind it: 2 kB are some 25 labels, so that no transaction fills the lock table.
    v_labelled := pg_catalog.octet_length(v_claim) <= 2048
      and pg_catalog.pg_try_advisory_xact_lock_shared(fence._label(p_resource, v_token));
    return v_idle;
  end if;
  perform fence._refuse(p_table, p_resource);
  return null;
end
$$;
