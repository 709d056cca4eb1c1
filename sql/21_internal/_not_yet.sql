-- LF010 for a parameter that is part of the contract and has no behaviour in this version.
create function fence._not_yet(p_parameter text) returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF010', pg_catalog.format('%s is not available yet', p_parameter),
    'The parameter is part of the contract; this version does not implement it.',
    pg_catalog.format('Leave %s out.', p_parameter));
end
$$;
