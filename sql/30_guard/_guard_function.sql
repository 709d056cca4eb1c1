-- The generated function of a guard, or null where it is missing.
create function fence._guard_function(p_id integer) returns oid
language sql
stable
as $$
  select pg_catalog.to_regprocedure(pg_catalog.format('fence.%I()', '_guard_' || p_id))::oid
$$;
