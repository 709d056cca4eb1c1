-- May a write that fails its check pass all the same? A logical replication worker's: it cannot present claims, and the publisher has checked it.
-- And, noted, that of a session whose role is exempt on this table at this moment. Where two tables have the guard, only on the one that has
-- the name it was made for. Asked only before a refusal.
-- Locks: the exemption FOR KEY SHARE, until the transaction ends. Code: 40001 for a snapshot older than the exemption's end.
create function fence._passes(p_table oid, p_code text, p_resource text) returns boolean
language plpgsql
volatile
as $$
declare
  v_guard fence._guard;
  v_root oid := fence._tree_root(p_table);
begin
  if fence._is_apply_worker() then
    return true;
  end if;
  v_guard := fence._guard_of(p_table);
  if v_guard.id is null then  -- a part that was detached
    return false;
  end if;
  perform from fence._exemption e
  where e.guard = v_guard.id and e.role = session_user and e.until > pg_catalog.clock_timestamp()
    and (fence._second_table(v_guard.id, v_root) is null or fence._named_table(v_guard) = v_root)
  for key share;
  if found then
    perform fence._note_violation(p_table, p_code, p_resource, true);
    return true;
  end if;
  return false;
end
$$;
