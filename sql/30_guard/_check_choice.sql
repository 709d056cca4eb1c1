-- LF010 unless p_value is null or one of p_choices; "not yet" for what the contract has and this version does not.
create function fence._check_choice(p_parameter text, p_value text, p_choices text[], p_later text[] default '{}') returns void
language plpgsql
stable
as $$
begin
  if p_value = any (p_later) then
    perform fence._not_yet(pg_catalog.format('%s => %L', p_parameter, p_value));
  elsif p_value <> all (p_choices) then
    perform fence._raise('LF010', pg_catalog.format('%s cannot be %L', p_parameter, p_value),
      pg_catalog.format('The choices are %s.', pg_catalog.array_to_string(p_choices || p_later, ', ')),
      pg_catalog.format('Pass %s => %L.', p_parameter, p_choices[1]));
  end if;
end
$$;
