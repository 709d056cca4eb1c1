-- The generated function of a guard against what would be generated today, by this version of pyfence, for the table as it is.
create function fence._audit_guard_function(p_guard fence._guard, p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'error', 'guard-function-changed', p_table::regclass::text,
      pg_catalog.format('fence.%I() is not what this version of pyfence generates for the table: %s.', p.proname, f.fault),
      pg_catalog.format('select fence.repair(%L);', p_table::regclass)
    from pg_catalog.pg_proc p
    cross join lateral (
      select case
        when p.prosrc <> fence._guard_source(p_guard, p_table) then 'its source differs'
        when p.provolatile <> 'v' then 'it is not VOLATILE'
        when not p.prosecdef then 'it is not SECURITY DEFINER'
        when p.proconfig is distinct from array['search_path=pg_catalog, pg_temp', 'lock_timeout=5s'] then 'its settings differ'
        when exists (
          select from pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) x
          where x.grantee not in (p.proowner, (select c.relowner from pg_catalog.pg_class c where c.oid = p_table)))
          then 'others than the table''s owner may make triggers with it'
      end as fault) f
    where p.oid = fence._guard_function(p_guard.id) and f.fault is not null;
end
$$;
