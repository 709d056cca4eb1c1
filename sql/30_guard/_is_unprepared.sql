-- Could a statement on this table that a function runs be stopped at a number of rows, with nobody looking at those? Where the database has got a language for that
-- since the guard was made; or a child since that, which has no row triggers of its parent's: at most such of a guard of its own.
create function fence._is_unprepared(p_table oid, p_guard integer) returns boolean
language plpgsql
stable
as $$
begin
  return fence._limiting_language() is not null and exists (
    select from fence._members(p_table) m
    where not exists (
      select from pg_catalog.pg_trigger t where t.tgrelid = m.relid and t.tgname = '0_fence_stopped' and t.tgenabled = 'A'
        and t.tgfoid = fence._guard_function(p_guard)));
end
$$;
