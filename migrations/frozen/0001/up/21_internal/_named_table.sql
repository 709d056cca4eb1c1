-- The table that has the name of the table a guard was made for, or null. Looked up in the catalog: to_regclass asks for rights on its schema.
create function fence._named_table(p_guard fence._guard) returns oid
language sql
stable
as $$
  select c.oid
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = (p_guard).schema_name and c.relname = (p_guard).table_name and c.relkind in ('r', 'p')
$$;
