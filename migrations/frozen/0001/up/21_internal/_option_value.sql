-- The present value of an option; null where there is none of that name (a schema whose data is not loaded yet).
create function fence._option_value(p_name text) returns text
language sql
stable
as $$
  select o.value from fence._option o where o.name = p_name
$$;
