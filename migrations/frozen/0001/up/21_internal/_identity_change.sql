-- How the authority's row and what it stands in differ, in words; kind is 'lineage', 'restart' (the same cluster, started again), or
-- null: nothing has changed, or this is a standby, which issues nothing.
create function fence._identity_change(out kind text, out why text) returns record
language plpgsql
volatile
as $$
declare
  v_is_stamped boolean;
  v_authority fence._authority;
begin
  if pg_catalog.pg_is_in_recovery() then
    return;
  end if;
  select a.xmin = a.stamp into v_is_stamped from fence._authority a;
  if not found then
    kind := 'missing';
    why := 'the authority has no row in this database';
    return;
  end if;
  select a.* into v_authority from fence._authority a;
  kind := 'lineage';
  if v_is_stamped is not true then
    why := 'the authority''s row was restored, copied or edited';
  elsif v_authority.timeline is distinct from fence._current_timeline() then
    why := pg_catalog.format('timeline %s became %s', pg_catalog.ltrim(v_authority.timeline, '0'), pg_catalog.ltrim(fence._current_timeline(), '0'));
  elsif v_authority.database_oid::text is distinct from fence._current_database() then
    why := 'this is a copy of the database';
  elsif v_authority.lease_oid is distinct from 'fence._lease'::regclass then
    why := 'the table of leases was made anew';
  elsif v_authority.started_at = pg_catalog.pg_postmaster_start_time() then
    kind := null;
  elsif v_authority.system_identifier is distinct from fence._current_system() then
    why := 'this is another cluster';
  else
    kind := 'restart';
    why := 'the server was started again';
  end if;
end
$$;
