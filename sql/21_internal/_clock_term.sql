-- What the clock makes of a floor: a lineage's tokens advance 100 times slower than the clock, so that an old primary that is still running
-- stays below the lineage that replaced it, and a roll-back that leaves no trace (a volume snapshot) still lands above what it lost.
create function fence._clock_term(p_floor bigint, p_floor_at timestamptz, p_at timestamptz) returns bigint
language sql
immutable
as $$
  select p_floor + greatest(0, (extract(epoch from p_at - p_floor_at) * 10000)::bigint)
$$;
