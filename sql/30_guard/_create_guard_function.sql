-- Creates or replaces a guard's function. The table's owner, and nobody else, may execute it, which CREATE TRIGGER asks
-- for; it returns trigger, so nobody can call it.
create function fence._create_guard_function(p_guard fence._guard, p_table oid) returns void
language plpgsql
volatile
set quote_all_identifiers = off
as $$
declare
  v_role text;
  v_name text := pg_catalog.format('fence.%I()', '_guard_' || p_guard.id);
begin
  execute pg_catalog.format(
    'create or replace function %s returns trigger language plpgsql volatile security definer '
      || 'set search_path = pg_catalog, pg_temp set lock_timeout = ''5s'' as %L',
    v_name, fence._guard_source(p_guard, p_table));
  for v_role in
    select case x.grantee when 0 then 'public' else x.grantee::regrole::text end
    from pg_catalog.pg_proc p cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) x
    where p.oid = v_name::regprocedure and x.grantee <> p.proowner
  loop
    execute pg_catalog.format('revoke all on function %s from %s', v_name, v_role);
  end loop;
  execute pg_catalog.format('grant execute on function %s to %I', v_name,
    (select pg_catalog.pg_get_userbyid(c.relowner) from pg_catalog.pg_class c where c.oid = p_table));
end
$$;
