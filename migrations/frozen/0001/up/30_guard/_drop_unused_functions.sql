-- Drops every generated guard function that has no registry row and no trigger, but for one that somebody else is dropping. Harmless whoever calls it.
-- Locks: those functions, 0.2 s each.
create function fence._drop_unused_functions() returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  v_name name;
begin
  for v_name in
    select p.proname
    from pg_proc p
    where p.pronamespace = 'fence'::regnamespace and fence._guard_id(p.proname) is not null
      and not exists (select from fence._guard g where g.id = fence._guard_id(p.proname))
      and not exists (select from pg_trigger t where t.tgfoid = p.oid)
  loop
    begin
      execute format('drop function fence.%I()', v_name);
    exception when lock_not_available or undefined_function then
      null;
    end;
  end loop;
end
$$;
