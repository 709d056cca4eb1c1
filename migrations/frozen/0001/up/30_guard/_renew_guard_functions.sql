-- Makes the function of every guard anew, with its present policies: the step of a revision that changes what protect generates. No table of
-- the application is locked: writers go on, and every later statement of theirs runs the new function. A guard that cannot be made (a key column is gone) keeps the
-- function it has, with a notice. Triggers stay as they are: a revision that wants others says so, and fence.repair makes them. The schema owner's to call.
-- Locks: fence._guard SHARE, which waits out every protect in progress and keeps new ones waiting, until the transaction ends.
create function fence._renew_guard_functions() returns bigint
language plpgsql
volatile
as $$
declare
  v_guard fence._guard;
  v_table oid;
  v_renewed bigint := 0;
begin
  lock table fence._guard in share mode;
  for v_guard in select g.* from fence._guard g order by g.id loop
    v_table := fence._guarded_table(v_guard);
    continue when v_table is null or fence._guard_function(v_guard.id) is null;
    begin
      perform fence._create_guard_function(v_guard, v_table);
      v_renewed := v_renewed + 1;
    exception when others then
      raise notice 'the guard of % stays as it was: % (%)', v_table::regclass, sqlerrm, sqlstate;
    end;
  end loop;
  return v_renewed;
end
$$;
