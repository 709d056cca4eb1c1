-- Does the number count that a writer without a claim has put into the token column? An exempt role's does, and an apply worker's. Asked for every row: so it
-- locks nothing and notes nothing, which the check of the statement does (fence._passes).
create function fence._may_stamp(p_guard integer) returns boolean
language plpgsql
volatile
as $$
begin
  perform from fence._exemption e where e.guard = p_guard and e.role = session_user and e.until > pg_catalog.clock_timestamp();
  return found or fence._is_apply_worker();
end
$$;
