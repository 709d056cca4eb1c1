-- LF010 unless p_resource can name a resource: 1 to 1024 bytes, and no {placeholder} left in it (a forgotten f-string).
create function fence._check_resource(p_resource text) returns void
language plpgsql
stable
as $$
begin
  if p_resource is null or p_resource = '' then
    perform fence._raise('LF010', 'a resource needs a name', 'The name is null or empty.',
      'Pass a name such as ''report:1''.');
  elsif pg_catalog.octet_length(p_resource) > 1024 then
    perform fence._raise('LF010', 'resource name too long',
      pg_catalog.format('The name has %s bytes; the limit is 1024.', pg_catalog.octet_length(p_resource)),
      'Use a shorter name, for example a hash of the long part.');
  elsif p_resource ~ '[{][^{}]*[}]' then
    perform fence._raise('LF010', pg_catalog.format('resource name %s holds an unrendered placeholder', pg_catalog.quote_literal(p_resource)),
      'Braces with something between them are a template''s placeholder, not a name.',
      'Render the template first: select fence.resource_name(''report:{id}'', ''{"id": 1}'');');
  end if;
end
$$;
