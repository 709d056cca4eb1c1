-- LF010 for a reason that is missing or too long; p_example is the call with one.
create function fence._check_reason(p_reason text, p_example text) returns void
language plpgsql
immutable
as $$
begin
  if coalesce(p_reason, '') = '' or pg_catalog.octet_length(p_reason) > 1024 then
    perform fence._raise('LF010', 'a reason is needed', 'The reason is null, empty or longer than 1024 bytes.',
      pg_catalog.format('Say why: %s', p_example));
  end if;
end
$$;
