-- Creates or replaces a guard's function. The table's owner may execute it, which CREATE TRIGGER asks for; it returns
-- trigger, so nobody can call it.
create function fence._create_guard_function(p_guard fence._guard, p_table oid) returns void
language plpgsql
volatile
as $$
declare
  v_name text := pg_catalog.format('fence.%I()', '_guard_' || p_guard.id);
begin
  execute pg_catalog.format(
    'create or replace function %s returns trigger language plpgsql volatile security definer '
      || 'set search_path = pg_catalog, pg_temp set lock_timeout = ''5s'' as %L',
    v_name, fence._guard_source(p_guard, p_table));
  execute pg_catalog.format('revoke all on function %s from public', v_name);
  execute pg_catalog.format('grant execute on function %s to %I', v_name,
    (select pg_catalog.pg_get_userbyid(c.relowner) from pg_catalog.pg_class c where c.oid = p_table));
end
$$;
