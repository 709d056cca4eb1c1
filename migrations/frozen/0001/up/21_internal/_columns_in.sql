-- The columns of a table that a JSON object names.
create function fence._columns_in(p_table oid, p_values jsonb) returns table (attnum smallint, attname name)
language sql
stable
as $$
  select a.attnum, a.attname
  from pg_catalog.pg_attribute a
  where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and p_values ? a.attname::text
$$;
