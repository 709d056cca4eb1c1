-- A moment as a token would be: microseconds since 1970.
create function fence._clock_number(p_at timestamptz) returns bigint
language sql
immutable
as $$
  select (extract(epoch from p_at) * 1000000)::bigint
$$;
