-- Raises what fence._verdict found (LF001, LF006), or LF002 for an expired lease, in words.
create function fence._refuse_claim(
  p_code text,
  p_lease fence._lease,
  p_token text,
  p_table oid default null
) returns void
language plpgsql
volatile
as $$
declare
  v_message text;
  v_detail text;
  v_hint text := pg_catalog.format(
    'Take the lease again and redo the work under its new token: select * from fence.acquire(%L);', p_lease.resource);
begin
  if p_code = 'LF002' then
    v_message := pg_catalog.format('the lease on %L has expired', p_lease.resource);
    v_detail := pg_catalog.format('Token %s expired at %s.', p_lease.token, p_lease.expires_at);
  elsif p_code = 'LF001' then
    v_message := pg_catalog.format('stale token for %L', p_lease.resource);
    v_detail := case
      when p_token is distinct from p_lease.token::text then
        pg_catalog.format('Token %s was superseded; the newest token is %s.', p_token, p_lease.token)
      when p_lease.secret_hash is null then pg_catalog.format('Token %s is closed: %s.', p_token, p_lease.closed_reason)
      else pg_catalog.format('Token %s was granted by an earlier lineage of the token authority.', p_token)
    end;
  else
    v_message := pg_catalog.format('not the holder of %L', p_lease.resource);
    v_detail := 'The token and the secret are not those of a lease that was granted.';
    v_hint := pg_catalog.format('Present what acquire returned, token and secret unchanged, or take the lease: '
      || 'select * from fence.acquire(%L);', p_lease.resource);
  end if;
  perform fence._raise(p_code, v_message, v_detail, v_hint, p_table);
end
$$;
