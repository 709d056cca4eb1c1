-- The last step of every revision: writes down what the functions of the schema are now, for the audit. The schema owner's to call.
create function fence._remember_functions() returns void
language plpgsql
volatile
as $$
begin
  delete from fence._function;
  insert into fence._function (name, fingerprint, volatile)
  select p.proname, fence._fingerprint(p.oid), p.provolatile = 'v'
  from pg_catalog.pg_proc p
  where p.pronamespace = 'fence'::regnamespace and p.proname !~ '^_guard_[0-9]+$';
end
$$;
