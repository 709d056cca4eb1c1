-- What the floor of a new lineage has to lie above: the present floor, the moment it was set, and every token in the leases, but for one
-- that is used up (its resource is never granted again). Reads all leases.
create function fence._highest_known() returns bigint
language sql
stable
as $$
  select greatest(a.floor, fence._clock_number(a.floor_at),
    (select pg_catalog.max(l.token) from fence._lease l where l.token < 9223372036854775807))
  from fence._authority a
$$;
