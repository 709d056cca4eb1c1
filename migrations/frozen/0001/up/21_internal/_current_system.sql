-- The cluster's system identifier; null where the caller may not read it.
create function fence._current_system() returns bigint
language plpgsql
stable
as $$
begin
  if not pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
    return null;
  end if;
  return (select c.system_identifier from pg_catalog.pg_control_system() c);
end
$$;
