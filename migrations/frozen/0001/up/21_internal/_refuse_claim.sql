-- Raises what fence._verdict found (LF001, LF006, LF009), or LF002 for an expired lease, in words. The caller has locked the row.
create function fence._refuse_claim(
  p_code text,
  p_resource text,
  p_token text,
  p_table oid default null
) returns void
language plpgsql
volatile
as $$
declare
  v_lease fence._lease;
  v_message text;
  v_detail text;
  v_hint text := pg_catalog.format(
    'Take the lease again and redo the work under its new token: select * from fence.acquire(%L);', p_resource);
begin
  select l.* into v_lease from fence._lease l where l.resource = p_resource;
  if p_code = 'LF002' then
    v_message := pg_catalog.format('the lease on %L has expired', p_resource);
    v_detail := pg_catalog.format('Token %s expired at %s.', v_lease.token, v_lease.expires_at);
  elsif p_code = 'LF001' then
    v_message := pg_catalog.format('stale token for %L', p_resource);
    v_detail := case
      when p_token <> v_lease.token::text then
        pg_catalog.format('Token %s was superseded; the newest token is %s.', p_token, v_lease.token)
      when v_lease.secret_hash is null then pg_catalog.format('Token %s is closed: %s.', p_token, v_lease.closed_reason)
      when v_lease.entered is not null then pg_catalog.format('Token %s was for one transaction, which has ended.', p_token)
      else pg_catalog.format('Token %s was granted by an earlier lineage of the token authority.', p_token)
    end;
  elsif p_code = 'LF009' then
    perform fence._refuse_quarantined((select c.why from fence._identity_change() c), null, p_table);
  else
    v_message := pg_catalog.format('not the holder of %L', p_resource);
    v_detail := 'The token and the secret are not those of a lease that was granted.';
    v_hint := pg_catalog.format('Present what acquire returned, token and secret unchanged, or take the lease: '
      || 'select * from fence.acquire(%L);', p_resource);
  end if;
  perform fence._raise(p_code, v_message, v_detail, v_hint, p_table);
end
$$;
