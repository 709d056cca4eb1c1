-- Drops every generated guard function that has no registry row and no trigger. Harmless whoever calls it.
create function fence._drop_unused_functions() returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid
    from pg_proc p
    where p.pronamespace = 'fence'::regnamespace and fence._guard_id(p.proname) is not null
      and not exists (select from fence._guard g where g.id = fence._guard_id(p.proname))
      and not exists (select from pg_trigger t where t.tgfoid = p.oid)
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
