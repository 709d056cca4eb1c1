-- Ends the lease of whoever holds it, expired or not, without waiting for the holder's open writes: dead for every statement
-- with a newer snapshot. False: there was nothing to end. For administrators.
-- Locks: the lease row FOR NO KEY UPDATE; as fence._retire_covering; as fence._call_waiter. Codes: LF010 bad argument; 40001 for a snapshot that cannot tell.
create function fence.revoke(p_resource text, p_reason text) returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_lease fence._lease;
begin
  perform fence._check_resource(p_resource);
  perform fence._check_reason(p_reason, format('select fence.revoke(%L, ''worker host is gone'');', p_resource));
  perform fence._begin_lease_change(interval '30 seconds');
  select l.* into v_lease from fence._lease l where l.resource = p_resource for no key update;
  if not found or v_lease.secret_hash is null then
    perform fence._check_snapshot(p_resource);
    return false;
  end if;
  perform fence._close(v_lease, format('revoked by %s: %s', session_user, p_reason));
  perform fence._retire_covering(p_resource);
  perform fence._call_waiter(p_resource);
  return true;
end
$$;

comment on function fence.revoke(text, text) is 'Ends a lease without its holder, expired or not. False: nothing to end. LF010.';
