-- A from item that turns a JSON object (the expression p_source) into columns of the table's own types, for the columns that
-- p_values names; to be followed by an alias. Alias and column list are part of it: jsonb_to_record(...) as <alias> (...).
create function fence._record_source(p_table oid, p_values jsonb, p_source text) returns text
language sql
stable
as $$
  select pg_catalog.format('(select * from pg_catalog.jsonb_to_record(%s) as j (%s))', p_source,
    pg_catalog.string_agg(pg_catalog.format('%I %s', a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum))
  from pg_catalog.pg_attribute a
  where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and p_values ? a.attname::text
$$;
