-- Has an autovacuum of a table, or of one under it, give way to a lock that is about to be asked for again. PostgreSQL ends it when somebody has waited for it for deadlock_timeout
-- (one second unless changed). Each table is waited for while no other is held here, and let go of at once. A VACUUM that somebody has begun goes on. Runs
-- with the caller's rights.
create function fence._stop_vacuum(p_table regclass, p_mode text) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1500ms'
as $$
declare
  v_member regclass;
begin
  for v_member in
    select m.relid from fence._members(p_table) m join pg_class c on c.oid = m.relid
    where c.relkind <> 'f' and exists (
      select from pg_locks l
      where l.relation = m.relid and l.database = fence._current_database()::oid and l.granted and l.mode = 'ShareUpdateExclusiveLock')
  loop
    begin
      execute format('lock table only %s in %s mode', v_member, p_mode);
      raise exception 'let go of it' using errcode = 'FENCE';
    exception when lock_not_available or undefined_table or syntax_error or sqlstate 'FENCE' then
      null;
    end;
  end loop;
end
$$;
