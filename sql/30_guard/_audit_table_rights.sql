-- Who could take a guard off, or step around it, by right: the owner, and holders of TRIGGER and TRUNCATE.
create function fence._audit_table_rights(p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
declare
  v_acquire oid := (select p.oid from pg_catalog.pg_proc p where p.pronamespace = 'fence'::regnamespace and p.proname = 'acquire' limit 1);
begin
  return query
    select case x.privilege_type when 'TRIGGER' then 'warning' else 'info' end,
      case x.privilege_type when 'TRIGGER' then 'trigger-granted' else 'truncate-granted' end, m.relid::regclass::text,
      pg_catalog.format(case x.privilege_type
        when 'TRIGGER' then '%s may replace the triggers of the guard, and so take it off, or add others around it.'
        else '%s may TRUNCATE it: the guard refuses that, but until repair() has seen a new partition, TRUNCATE of it is open to who has the right.'
      end, pg_catalog.string_agg(distinct g.name, ', ')),
      pg_catalog.format('revoke %s on %s from %s;', pg_catalog.lower(x.privilege_type), m.relid::regclass, pg_catalog.string_agg(distinct g.name, ', '))
    from fence._members(p_table) m
    join pg_catalog.pg_class c on c.oid = m.relid
    cross join lateral pg_catalog.aclexplode(c.relacl) x
    cross join lateral (select case x.grantee when 0 then 'public' else x.grantee::regrole::text end as name) g
    where x.privilege_type in ('TRIGGER', 'TRUNCATE') and x.grantee <> c.relowner
    group by m.relid, x.privilege_type;

  return query
    select o.severity, o.code, p_table::regclass::text, pg_catalog.format(o.detail, r.rolname), o.remedy
    from pg_catalog.pg_roles r
    cross join lateral (values
      (r.rolsuper, 'info', 'owner-superuser', 'Its owner, %I, is a superuser, whom nothing stops.',
        'Give it to a role that cannot log in and is no superuser: alter table ... owner to ...'),
      (r.rolcanlogin and not r.rolsuper, 'warning', 'owner-can-login', 'Its owner, %I, can log in, and take the guard off.',
        'Give it to a role that cannot log in, and that migrations assume: alter table ... owner to ...'),
      (not r.rolsuper and coalesce(pg_catalog.has_function_privilege(r.oid, v_acquire, 'execute'), false), 'warning', 'owner-is-client',
        'Its owner, %I, is a client of pyfence too: the application could take off the guard that checks it.',
        'Let the application write as another role than the owner: pyfence role add ROLE --as client.'))
      o (found, severity, code, detail, remedy)
    where o.found and r.oid in (
      select c.relowner from fence._members(p_table) m join pg_catalog.pg_class c on c.oid = m.relid);
end
$$;
