-- A text as a regular expression that matches it and nothing else. The backslash is made, not written: see fence._template_parts.
create function fence._escape(p_text text) returns text
language sql
immutable
as $$
  select pg_catalog.regexp_replace(p_text collate "C", '([[:punct:]])', pg_catalog.repeat(pg_catalog.chr(92), 3) || '1', 'g')
$$;
