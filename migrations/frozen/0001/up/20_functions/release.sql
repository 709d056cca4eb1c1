-- Ends a lease. True: it was this holder's newest token and is closed now. False: no longer (or never) the holder; nothing is
-- touched. Does not wait for the holder's own open writes; a successor does. Call it in a transaction of its own.
-- Locks: the lease row FOR NO KEY UPDATE, of its holder only: whoever cannot prove the claim locks nothing; as fence._retire_covering; as fence._call_waiter. Codes: LF010 bad argument; 40001 for a snapshot that cannot tell.
create function fence.release(p_resource text, p_token bigint, p_secret text) returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_lease fence._lease;
begin
  perform fence._check_claim(p_resource, p_token, p_secret);
  perform fence._begin_lease_change(interval '30 seconds');
  select l.* into v_lease
  from fence._lease l
  where l.resource = p_resource
    and fence._is_current(l.token, l.secret_hash, l.lineage = (select p.lineage from fence._present_lineage p), p_token::text, p_secret)
  for no key update of l;
  if not found then
    perform fence._check_snapshot(p_resource);
    return false;
  end if;
  perform fence._close(v_lease, 'released');
  perform fence._retire_covering(p_resource);
  perform fence._call_waiter(p_resource);
  return true;
end
$$;

comment on function fence.release(text, bigint, text) is
  'Ends the lease of its holder; false if it is not the holder any more. LF010.';
