-- The functions of the schema against what was installed, and against the properties that the guarantees rest on. The reference is a table that the
-- schema's owner can write: it tells an accident or a stranger's change, not a forgery by that role.
create function fence._audit_functions()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'error', 'function-missing', 'fence.' || i.name, 'The function is gone.',
      'Install it again from the SQL of this version of pyfence (pyfence migrate sql prints it).'
    from fence._function i
    where not exists (select from pg_catalog.pg_proc p where p.pronamespace = 'fence'::regnamespace and p.proname = i.name);

  return query
    select f.severity, f.code, p.oid::regprocedure::text, f.detail, f.remedy
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    left join fence._function i on i.name = p.proname
    cross join lateral (values
      (i.name is null and p.proname !~ '^_guard_[0-9]+$', 'warning', 'function-unknown', 'It is not one of pyfence''s.',
        pg_catalog.format('drop function %s;', p.oid::regprocedure)),
      (i.fingerprint <> fence._fingerprint(p.oid), 'error', 'function-changed', 'It is not what was installed: arguments, source, or SECURITY DEFINER.',
        'Install it again from the SQL of this version of pyfence (pyfence migrate sql prints it).'),
      (i.volatile and p.provolatile <> 'v', 'error', 'function-not-volatile',
        'It must be VOLATILE: with the snapshot of the calling statement its lock proves nothing.',
        pg_catalog.format('alter function %s volatile;', p.oid::regprocedure)),
      (p.prosecdef and coalesce('search_path=pg_catalog, pg_temp' <> all (p.proconfig), true), 'error', 'function-search-path',
        'It is SECURITY DEFINER and its search_path is not pinned: whoever calls it can run code as the schema''s owner.',
        pg_catalog.format('alter function %s set search_path = pg_catalog, pg_temp;', p.oid::regprocedure)),
      (p.proowner <> n.nspowner, 'error', 'function-owner', pg_catalog.format('It belongs to %s, not to the schema''s owner.', p.proowner::regrole),
        pg_catalog.format('alter function %s owner to %s;', p.oid::regprocedure, n.nspowner::regrole)),
      (exists (select from pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) x where x.grantee = 0),
        'error', 'function-public', 'Everybody may execute it.',
        pg_catalog.format('revoke all on function %s from public;', p.oid::regprocedure)))
      f (found, severity, code, detail, remedy)
    where n.nspname = 'fence' and f.found;
end
$$;
