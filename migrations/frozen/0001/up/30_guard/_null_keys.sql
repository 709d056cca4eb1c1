-- The condition that finds rows of a protected table whose key is null; null where its columns cannot hold nulls.
create function fence._null_keys(p_table regclass) returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select string_agg(format('%I is null', k.attname), ' or ')
    from fence._key_columns(p_table, fence._template_of(p_table)) k
    where fence._nullable(p_table, k.attname)
  );
end
$$;
