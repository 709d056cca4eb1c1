-- A resource's name as the claims hold it: without any character that separates them.
create function fence._claim_key(p_resource text) returns text
language sql
stable
as $$
  select pg_catalog.encode(pg_catalog.convert_to(p_resource, 'UTF8'), 'hex')
$$;
