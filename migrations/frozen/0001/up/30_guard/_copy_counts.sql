-- What was counted for one guard counts for another, too: the newest of either.
create function fence._copy_counts(p_from integer, p_to integer) returns void
language sql
volatile
as $$
  insert into fence._accepted as o (guard, resource, token, sequence, xact, at)
  select p_to, a.resource, a.token, a.sequence, a.xact, a.at from fence._accepted a where a.guard = p_from
  on conflict (guard, resource) do update
  set token = excluded.token, sequence = excluded.sequence, xact = excluded.xact, at = excluded.at
  where (excluded.token, excluded.sequence) > (o.token, o.sequence)
$$;
