-- The number in the name of a generated guard function, or null for another function.
create function fence._guard_id(p_function name) returns integer
language sql
immutable
as $$
  select case when p_function ~ '^_guard_[0-9]{1,9}$' then pg_catalog.substr(p_function::text, 8)::integer end
$$;
