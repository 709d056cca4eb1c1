-- The revision that fence.alembic_version records; null where there is none. For the audit: the table is the schema owner's alone.
create function fence._recorded_revision() returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_revision text;
begin
  if to_regclass('fence.alembic_version') is not null then
    execute 'select v.version_num from fence.alembic_version v' into v_revision;
  end if;
  return v_revision;
end
$$;
