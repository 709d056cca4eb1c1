-- The token: the one place that makes one. The caller holds the lease row FOR UPDATE (or is inserting it).
-- The floor is the clock at the beginning of the lineage; from there the term advances 100 times slower than the clock, so
-- that an old primary that is still running stays below the lineage that replaced it. LF009 when the range is used up.
create function fence._next_token(p_last bigint) returns bigint
language plpgsql
volatile
as $$
begin
  if p_last = 9223372036854775807 then
    perform fence._raise('LF009', 'the tokens of this resource are exhausted',
      'The last token was the largest bigint.', 'Coordinate the work under a new resource name.');
  end if;
  return (
    select greatest(p_last + 1, a.floor + greatest(0, (extract(epoch from c.now - a.floor_at) * 10000)::bigint))
    from fence._authority a, (select pg_catalog.clock_timestamp() as now) c
  );
end
$$;
