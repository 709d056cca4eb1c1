-- A trigger's condition without what PostgreSQL adds when it prints it, for comparing it with its source.
create function fence._plain_condition(p_condition text) returns text
language sql
immutable
as $$
  select pg_catalog.regexp_replace(pg_catalog.lower(p_condition), '[() ]|pg_catalog[.]|::text|::character varying', '', 'g')
$$;
