-- Nobody gets anything, whatever the database's default privileges say. Roles get theirs from fence._role_grants.
do $$
declare
  v_role text;
begin
  for v_role in
    select distinct case x.grantee when 0 then 'public' else x.grantee::pg_catalog.regrole::pg_catalog.text end
    from (
      select c.relacl, c.relowner from pg_catalog.pg_class c where c.relnamespace = 'fence'::pg_catalog.regnamespace
      union all
      select coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.proowner
      from pg_catalog.pg_proc p where p.pronamespace = 'fence'::pg_catalog.regnamespace) o (acl, owner)
    cross join lateral pg_catalog.aclexplode(o.acl) x
    where x.grantee <> o.owner
  loop
    execute pg_catalog.format('revoke all on all tables in schema fence from %s', v_role);
    execute pg_catalog.format('revoke all on all sequences in schema fence from %s', v_role);
    execute pg_catalog.format('revoke all on all functions in schema fence from %s', v_role);
  end loop;
end
$$;
