-- LF010 unless p_value is null or one of p_choices.
create function fence._check_choice(p_parameter text, p_value text, p_choices text[]) returns void
language plpgsql
stable
as $$
begin
  if p_value <> all (p_choices) then
    perform fence._raise('LF010', pg_catalog.format('%s cannot be %L', p_parameter, p_value),
      pg_catalog.format('The choices are %s.', pg_catalog.array_to_string(p_choices, ', ')),
      pg_catalog.format('Pass %s => %L.', p_parameter, p_choices[1]));
  end if;
end
$$;
