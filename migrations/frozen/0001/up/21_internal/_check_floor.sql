-- LF010 for a number that is no floor for tokens. Null passes.
create function fence._check_floor(p_floor bigint) returns void
language plpgsql
immutable
as $$
begin
  if p_floor not between 1 and 9000000000000000000 then
    perform fence._raise('LF010', pg_catalog.format('%s is no floor', p_floor), 'A floor is between 1 and 9000000000000000000.',
      'Pass the highest token that anything remembers: microseconds since 1970, 16 digits.');
  end if;
end
$$;
