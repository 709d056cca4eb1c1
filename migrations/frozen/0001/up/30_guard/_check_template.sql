-- LF010 unless a guard's template renders to names that can be acquired: known columns of allowed types, balanced braces,
-- and no literal text that looks like a placeholder.
create function fence._check_template(p_guard fence._guard, p_table oid) returns void
language plpgsql
stable
as $$
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
  perform from fence._key_columns(p_table, p_guard.template);
end
$$;
