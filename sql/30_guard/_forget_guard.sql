-- Takes a guard out of the registry, with the writes counted for it and the exemptions from it. Its triggers and its function are the caller's to drop.
create function fence._forget_guard(p_id integer) returns void
language sql
volatile
as $$
  delete from fence._guard g where g.id = p_id;  -- first: it waits for who exempts a role at this moment
  delete from fence._accepted a where a.guard = p_id;
  delete from fence._exemption e where e.guard = p_id
$$;
