-- The generated functions of guards that are gone; they are called fence._guard_<id>.
do $$
declare
  v_function text;
begin
  for v_function in
    select format('%I.%I()', n.nspname, f.proname)
    from pg_catalog.pg_proc f join pg_catalog.pg_namespace n on n.oid = f.pronamespace
    where n.nspname = 'fence' and f.proname ~ '^_guard_[0-9]+$'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
