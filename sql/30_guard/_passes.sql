-- May a write that fails its check pass all the same? A logical replication worker's: it cannot present claims, and the publisher has checked it.
-- And, noted, that of a session whose role is exempt on this table at this moment. Asked only before a refusal.
-- Locks: the exemption FOR KEY SHARE, until the transaction ends. Code: 40001 for a snapshot older than the exemption's end.
create function fence._passes(p_table oid, p_code text, p_resource text) returns boolean
language plpgsql
volatile
as $$
begin
  if fence._is_apply_worker() then
    return true;
  end if;
  perform from fence._exemption e
  where e.guard = (fence._guard_of(p_table)).id and e.role = session_user and e.until > pg_catalog.clock_timestamp()
  for key share;
  if found then
    perform fence._note_violation(p_table, p_code, p_resource, true);
    return true;
  end if;
  return false;
end
$$;
