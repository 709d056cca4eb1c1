-- A pattern with * for any run of characters, as a regular expression.
create function fence._glob_expression(p_pattern text) returns text
language sql
immutable
as $$
  select '^' || pg_catalog.replace(fence._escape(p_pattern), fence._escape('*'), '.*') || '$'
$$;
