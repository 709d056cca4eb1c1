-- Renders a template: the one true rendering, the same that a guard applies to a row.
--   resource_name('tenant:{tenant_id}:{region}', '{"tenant_id": 7, "region": "eu:west"}')  ->  tenant:7:eu%3Awest
-- Values are JSON strings, whole numbers and booleans; {@schema} and {@table} are values of those names. Values that the
-- template does not name are ignored.
-- Codes: LF010 unbalanced braces, a placeholder without a value, null, a fraction, an array or an object; a name of more than 1024 bytes.
create function fence.resource_name(p_template text, p_values jsonb) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_part record;
  v_value jsonb;
  v_name text := '';
begin
  if p_template is null or p_template = '' or jsonb_typeof(p_values) is distinct from 'object' then
    perform fence._raise('LF010', 'a resource''s name needs a template and an object of values',
      'The template is null or empty, or the values are no JSON object.',
      'For example: select fence.resource_name(''report:{id}'', ''{"id": 1}'');');
  end if;
  for v_part in select p.kind, p.value from fence._template_parts(p_template) p order by p.ordinal loop
    if v_part.kind = 'text' then
      v_name := v_name || v_part.value;
      continue;
    end if;
    v_value := p_values -> v_part.value;
    if v_value is null or jsonb_typeof(v_value) not in ('string', 'number', 'boolean')
      or (jsonb_typeof(v_value) = 'number' and v_value::text !~ '^-?[0-9]+$')
    then
      perform fence._raise('LF010', format('no usable value for {%s} in template %L', v_part.value, p_template),
        format('The value is %s; a key is a string, a whole number or a boolean.', coalesce(v_value::text, 'missing')),
        format('Pass a value for %s.', quote_literal(v_part.value)));
    end if;
    v_name := v_name || fence._encode(v_value #>> '{}');
  end loop;
  if octet_length(v_name) > 1024 then
    perform fence._check_resource(v_name);
  end if;
  return v_name;
end
$$;

comment on function fence.resource_name(text, jsonb) is
  'Renders a resource template with values, exactly as a guard renders it from a row. LF010.';
