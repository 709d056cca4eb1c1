-- The one resource of a table-scope guard.
create function fence._table_resource(p_guard fence._guard) returns text
language sql
stable
as $$
  select fence.resource_name((p_guard).template,
    pg_catalog.jsonb_build_object('@schema', (p_guard).template_schema, '@table', (p_guard).template_table))
$$;
