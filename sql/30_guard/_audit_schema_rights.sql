-- Who could do as they like with the schema itself, or write every table. The schema's owner is who owns what is in it: a superuser may have
-- made the schema for that role.
create function fence._audit_schema_rights()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'warning', o.code, 'schema fence', pg_catalog.format(o.detail, r.rolname),
      'Let a role that cannot log in own it, used for pyfence alone: alter schema fence owner to ..., and the same for all in it.'
    from pg_catalog.pg_class c
    join pg_catalog.pg_roles r on r.oid = c.relowner
    cross join lateral (values
      (r.rolsuper, 'schema-owner-superuser', 'Its owner, %I, is a superuser: so is every function and guard that runs with its rights.'),
      (r.rolcanlogin and not r.rolsuper, 'schema-owner-can-login', 'Its owner, %I, can log in, and write leases and tokens directly.'))
      o (found, code, detail)
    where c.oid = 'fence._lease'::regclass and o.found;

  return query
    select 'error', 'schema-create-granted', 'schema fence', pg_catalog.format('%s may create objects in it, that stand in for pyfence''s own.', g.name),
      pg_catalog.format('revoke create on schema fence from %s;', g.name)
    from pg_catalog.pg_namespace n
    cross join lateral pg_catalog.aclexplode(n.nspacl) x
    cross join lateral (select case x.grantee when 0 then 'public' else x.grantee::regrole::text end as name) g
    where n.nspname = 'fence' and x.privilege_type = 'CREATE' and x.grantee <> n.nspowner
      and x.grantee <> (select c.relowner from pg_catalog.pg_class c where c.oid = 'fence._lease'::regclass);

  return query
    select 'info', 'write-all-data', m.member::regrole::text,
      'It is a member of pg_write_all_data: guards refuse it as everybody, but it may TRUNCATE nothing and write every table that has none.',
      pg_catalog.format('revoke pg_write_all_data from %s;', m.member::regrole)
    from pg_catalog.pg_auth_members m join pg_catalog.pg_roles r on r.oid = m.roleid
    where r.rolname = 'pg_write_all_data';
end
$$;
