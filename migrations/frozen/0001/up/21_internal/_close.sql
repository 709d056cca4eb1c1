-- Closes a lease whose row the caller has locked: drops the secret, which is no key column and so waits for nobody. From its
-- commit on every claim with a newer snapshot is refused; the next acquire waits for the older ones.
create function fence._close(p_lease fence._lease, p_reason text) returns void
language plpgsql
volatile
as $$
begin
  update fence._lease l set secret_hash = null, closed_reason = p_reason where l.resource = p_lease.resource;
  perform fence._record('closed', p_lease.resource, p_lease.token, p_lease.owner, pg_catalog.jsonb_build_object('reason', p_reason,
    'expires_at', p_lease.expires_at));
end
$$;
