-- Where a guard sits (null: nowhere, or its triggers are gone) and whether it is armed (null: nobody can tell, the table is locked, or being dropped). For the views, whose functions run with the
-- reader's rights.
create function fence._guard_state(p_id integer, out relid oid, out armed boolean)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
set lock_timeout = '1s'  -- pg_get_triggerdef opens the table
as $$
declare
  v_guard fence._guard;
begin
  select g.* into v_guard from fence._guard g where g.id = p_id;
  relid := fence._table_of(v_guard);
  armed := relid is not null and not exists (select from fence._trigger_faults(v_guard, relid))
    and not exists (select from pg_inherits i where i.inhrelid = relid);  -- writes through a table above it pass it by
exception
  when sqlstate 'LF010' then  -- its template does not fit the table any more
    armed := false;
  when lock_not_available or internal_error or undefined_table or undefined_object or undefined_function then  -- locked, or going away at this moment
    armed := null;
end
$$;
