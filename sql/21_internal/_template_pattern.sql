-- What the names of a template look like: pattern, a regular expression that matches each of them whole; prefix, what they begin with. A rendered value
-- holds none of the characters that mean something in a template.
create function fence._template_pattern(p_template text, p_schema text, p_table text, out pattern text, out prefix text)
language plpgsql
stable
as $$
declare
  v_part record;
  v_text text;
  v_fixed boolean := true;
begin
  pattern := '';
  prefix := '';
  for v_part in select p.kind, p.value from fence._template_parts(p_template) p order by p.ordinal loop
    v_text := case
      when v_part.kind = 'text' then v_part.value
      when v_part.value = '@schema' then fence._encode(p_schema)
      when v_part.value = '@table' then fence._encode(p_table)
    end;
    if v_text is null then
      pattern := pattern || '[^:{}]*';
      v_fixed := false;
    else
      prefix := prefix || case when v_fixed then v_text else '' end;
      pattern := pattern || fence._escape(v_text);
    end if;
  end loop;
  pattern := '^' || pattern || '$';
end
$$;
