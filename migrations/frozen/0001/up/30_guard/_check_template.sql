-- LF010 unless a guard's template renders to names that can be acquired: known columns of allowed types, balanced braces,
-- and no literal text that looks like a placeholder.
create function fence._check_template(p_guard fence._guard, p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_column name;
begin
  if coalesce(p_guard.template, '') = '' then
    perform fence._raise('LF010', 'a guard needs a resource', 'The resource is null or empty.',
      'Pass a name (''nightly-billing'') or a template over the table''s columns (''report:{id}'').', p_table);
  end if;
  perform fence._check_resource(pg_catalog.string_agg(
    case
      when p.kind = 'text' then p.value
      when p.value = '@schema' then fence._encode(p_guard.template_schema)
      when p.value = '@table' then fence._encode(p_guard.template_table)
      else '0'
    end, '' order by p.ordinal))
  from fence._template_parts(p_guard.template) p;
  -- What a generated column becomes is not known yet when a row leaves its partition.
  select k.attname into v_column
  from fence._key_columns(p_table, p_guard.template) k
  join pg_catalog.pg_attribute a on a.attrelid = p_table and a.attname = k.attname
  join pg_catalog.pg_class c on c.oid = p_table
  where a.attgenerated <> '' and c.relkind = 'p'
  limit 1;
  if found then
    perform fence._raise('LF010', pg_catalog.format('column %I cannot be part of the key of a partitioned table', v_column),
      'It is generated: what it becomes is not known yet when a row leaves its partition.',
      'Name the columns that it is computed from, or keep the same text in an ordinary column.', p_table);
  end if;
end
$$;
