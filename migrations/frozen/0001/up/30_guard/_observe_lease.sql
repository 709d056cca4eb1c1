-- fence._check_lease for a table that is only observed: notes what it would refuse. Locks no lease and waits for nothing.
-- At REPEATABLE READ and SERIALIZABLE the snapshot may be older than the grant or a renewal: what looks unknown or expired there, nobody can tell.
-- Locks: fence._lease and fence._authority ACCESS SHARE NOWAIT. Its caller catches every error.
create function fence._observe_lease(p_table oid, p_resource text, p_expiry text) returns void
language plpgsql
volatile
as $$
declare
  v_code text;
begin
  lock table fence._lease, fence._authority in access share mode nowait;
  v_code := fence._refusal(p_resource, p_expiry);
  if v_code is null or v_code in ('LF002', 'LF006') and fence._keeps_snapshot() then
    return;
  end if;
  perform fence._observe(p_table, v_code, p_resource);
end
$$;
