-- Writes the stamp of the authority's row: its own xmin, which in a savepoint is not the transaction's number. The last step of everything
-- that changes the row.
create function fence._seal() returns void
language plpgsql
volatile
as $$
declare
  v_xmin xid;
begin
  update fence._authority a set stamp = pg_catalog.pg_current_xact_id()::xid returning a.xmin into strict v_xmin;
  update fence._authority a set stamp = v_xmin where a.stamp <> v_xmin;
end
$$;
