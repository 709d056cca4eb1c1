-- Where a guard lets writes pass that it could refuse, because somebody decided so.
create function fence._audit_policy(p_guard fence._guard, p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'warning', 'table-observed', p_table::regclass::text, 'The guard only observes: it notes what it would refuse (fence.violations).',
      pg_catalog.format('select fence.set_mode(%L, %L);', p_table::regclass, 'enforce')
    where p_guard.mode = 'observe';

  return query
    select 'warning', 'role-exempt', p_table::regclass::text,
      pg_catalog.format('Sessions of %I are let pass until %s (by %s: %s).', e.role, e.until, e.granted_by, e.reason),
      pg_catalog.format('select fence.unexempt(%L, %L);', p_table::regclass, pg_catalog.quote_ident(e.role))
    from fence._exemption e
    where e.guard = p_guard.id and e.until > pg_catalog.clock_timestamp();
end
$$;
