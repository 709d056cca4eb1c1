-- No backslashes in here: what they mean in a literal depends on the session (standard_conforming_strings).
-- A template cut into its parts, in order: kind 'text' (braces un-doubled) or 'name' (what stands between braces).
-- LF010 for unbalanced braces, empty placeholders, and more than 1024 bytes.
create function fence._template_parts(p_template text) returns table (ordinal integer, kind text, value text)
language plpgsql
stable
as $$
declare
  v_match text[];
  v_rest text := p_template;
begin
  if pg_catalog.octet_length(p_template) > 1024 then
    perform fence._raise('LF010', 'template too long', pg_catalog.format('It has %s bytes; the limit is 1024.', pg_catalog.octet_length(p_template)),
      'Shorten the text between the placeholders.');
  end if;
  ordinal := 0;
  while v_rest <> '' loop
    ordinal := ordinal + 1;
    -- the longest run of plain characters and doubled braces, else one placeholder
    v_match := pg_catalog.regexp_match(v_rest, '^((?:[^{}]|[{][{]|[}][}])+)');
    if v_match is not null then
      kind := 'text';
      value := pg_catalog.replace(pg_catalog.replace(v_match[1], '{{', '{'), '}}', '}');
      v_rest := pg_catalog.substr(v_rest, pg_catalog.length(v_match[1]) + 1);
    else
      v_match := pg_catalog.regexp_match(v_rest, '^[{]([^{}]+)[}]');
      if v_match is null then
        perform fence._raise('LF010', pg_catalog.format('template %L has unbalanced braces', p_template),
          pg_catalog.format('It cannot be read from %L on.', v_rest),
          'Write a placeholder as {column}; write a literal brace twice: {{ or }}.');
      end if;
      kind := 'name';
      value := v_match[1];
      v_rest := pg_catalog.substr(v_rest, pg_catalog.length(v_match[1]) + 3);
    end if;
    return next;
  end loop;
end
$$;
