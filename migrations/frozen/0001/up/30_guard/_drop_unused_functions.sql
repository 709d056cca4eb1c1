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
    where p.pronamespace = 'fence'::regnamespace and p.proname ~ '^_guard_[0-9]+$'
      and not exists (select from fence._guard g where p.proname = '_guard_' || g.id)
      and not exists (select from pg_trigger t where t.tgfoid = p.oid)
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
