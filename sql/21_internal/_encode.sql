-- A value as it stands in a resource's name: the characters that mean something in templates are percent-encoded, so that
-- ('a', 'b:c') and ('a:b', 'c') never meet.
create function fence._encode(p_value text) returns text
language sql
immutable
strict
as $$
  select pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
    p_value, '%', '%25'), ':', '%3A'), '{', '%7B'), '}', '%7D')
$$;
