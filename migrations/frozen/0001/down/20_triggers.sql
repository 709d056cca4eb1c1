-- The triggers of pyfence's own tables, and the generated functions of guards that are gone: both were made by loops.
do $$
declare
  v_statement text;
begin
  for v_statement in
    select format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass)
    from pg_catalog.pg_trigger t
    join pg_catalog.pg_proc f on f.oid = t.tgfoid
    join pg_catalog.pg_class c on c.oid = t.tgrelid
    where f.pronamespace = 'fence'::regnamespace and c.relnamespace = 'fence'::regnamespace and not t.tgisinternal
  loop
    execute v_statement;
  end loop;
  for v_statement in
    select format('drop function %s', p.oid::regprocedure)
    from pg_catalog.pg_proc p
    where p.pronamespace = 'fence'::regnamespace and p.proname ~ '^_guard_[0-9]+$'
  loop
    execute v_statement;
  end loop;
end
$$;
