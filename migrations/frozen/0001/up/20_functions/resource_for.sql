-- The resource of a row of a protected table, by its key. The row need not exist where the key holds every column of the
-- template; else it is read, with the caller's own rights.
-- Codes: LF010 not protected, not a unique key, no such row, a null key.
create function fence.resource_for(p_table regclass, p_key jsonb) returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resource text;
begin
  execute fence._resource_query(p_table, p_key) into v_resource using p_key;
  if v_resource is null then
    perform fence._raise('LF010', format('no resource for this key of %s', p_table),
      'There is no such row, or a column of its key is null.', 'Pass the key of an existing row, with every value set.', p_table);
  end if;
  return v_resource;
end
$$;

comment on function fence.resource_for(regclass, jsonb) is
  'The name of the resource that a row of a protected table belongs to. LF010.';
