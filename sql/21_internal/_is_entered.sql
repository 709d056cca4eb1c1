-- Does a lease's entered (fence.enter) let this transaction use it? Null: an ordinary lease, everybody's.
create function fence._is_entered(p_entered xid8) returns boolean
language sql
stable
as $$
  select coalesce(p_entered = pg_catalog.pg_current_xact_id_if_assigned(), p_entered is null)
$$;
