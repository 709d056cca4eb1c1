-- A pattern with * for any run of characters, as a regular expression. The backslash is made, not written: see fence._template_parts.
create function fence._glob_expression(p_pattern text) returns text
language sql
immutable
as $$
  select '^' || pg_catalog.replace(
    pg_catalog.regexp_replace(p_pattern collate "C", '([[:punct:]])', pg_catalog.repeat(pg_catalog.chr(92), 3) || '1', 'g'),
    pg_catalog.chr(92) || '*', '.*') || '$'
$$;
