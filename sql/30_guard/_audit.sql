-- The part of fence.audit that needs the schema owner's rights: everything but the sessions. Its queries are planned once, not for every guard: planning
-- was 0.4 of the time.
create function fence._audit()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_guard fence._guard;
begin
  for v_guard in select g.* from fence._guard g order by g.id loop
    return query select a.* from fence._audit_guard(v_guard) a;
  end loop;
  return query select a.* from fence._audit_strays() a;
  return query select a.* from fence._audit_own_tables() a;
  return query select a.* from fence._audit_functions() a;
  return query select a.* from fence._audit_schema_rights() a;
  return query select a.* from fence._audit_prepared() a;
  return query select a.* from fence._audit_server() a;
  return query select a.* from fence._audit_settings() a;
  return query select a.* from fence._audit_authority() a;
  return query select a.* from fence._audit_testing() a;
end
$$;
