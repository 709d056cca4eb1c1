-- A trigger's condition without what PostgreSQL adds when it prints it, for comparing it with its source. Names in quotes follow once more as they are: they may
-- differ in nothing but case, blanks or brackets.
create function fence._plain_condition(p_condition text) returns text
language sql
immutable
as $$
  select pg_catalog.regexp_replace(pg_catalog.lower(p_condition), '[() ]|pg_catalog[.]|::text|::character varying', '', 'g')
    || coalesce((select pg_catalog.string_agg(m.quoted[1], '') from pg_catalog.regexp_matches(p_condition, '"(?:[^"]|"")*"', 'g') m (quoted)), '')
$$;
