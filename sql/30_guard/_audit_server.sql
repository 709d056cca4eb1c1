-- A server whose faults open the fence.
create function fence._audit_server()
returns table (severity text, code text, object text, detail text, remedy text)
language sql
stable
as $$
  select 'error', 'server-too-old', pg_catalog.current_setting('server_version'),
    'MERGE beside another write to the same table (in one statement, or through a foreign key to itself) passes the guards of this release unseen.',
    'Update PostgreSQL to 15.16, 16.12, 17.8, 18.2 or newer of its major version.'
  where fence._has_merge_fault(pg_catalog.current_setting('server_version_num')::integer)
    and exists (select from fence._guard g where g.scope = 'row' or g.writes <> 'many')
$$;
