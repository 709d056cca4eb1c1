-- The authority in one row, for people: what the row remembers, what the database is now, and what to do. state: 'issuing'; 'pending', the
-- next acquire begins a new lineage or accepts the restart; 'quarantined', nothing is granted before an administrator acts;
-- 'standby'. remedy is null where there is nothing to do. Reads all leases.
create function fence._authority_state()
returns table (state text, why text, remedy text, lineage bigint, floor bigint, floor_at timestamptz, next_token bigint,
  highest_known bigint, system_identifier bigint, timeline text, database_oid oid, started_at timestamptz,
  present_system_identifier bigint, present_timeline text, present_database_oid oid, present_started_at timestamptz)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_kind text;
  v_floor bigint;
begin
  select c.kind, c.why into v_kind, why from fence._identity_change() c;
  v_floor := fence._clock_shortfall(coalesce(v_kind, 'restart'));
  state := case
    when pg_is_in_recovery() then 'standby'
    when fence._waits_for_operator(v_kind) or v_floor is not null and v_kind is not null then 'quarantined'
    when fence._option_value('need_sync') = 'on' and current_setting('synchronous_standby_names') = '' then 'quarantined'
    when v_kind is not null then 'pending'
    else 'issuing'
  end;
  if state = 'quarantined' and v_kind is null then
    why := 'the option need_sync is on, and synchronous_standby_names is empty';
    remedy := 'Set synchronous_standby_names.';
  elsif v_kind = 'missing' then
    remedy := 'Load the data of schema fence from the dump that the schema came from: pg_dump --data-only -n fence';
  elsif state = 'quarantined' then
    remedy := fence._quarantine_remedy(v_floor);
  elsif state = 'pending' and v_kind = 'lineage' then
    remedy := 'Nothing: the next acquire begins a new lineage, and whoever held a lease acquires again. '
      || 'Make sure that no other copy of this database is in use.';
  elsif state = 'issuing' and v_floor is not null then
    why := 'the clock is behind the tokens; they go on one by one';
    remedy := 'Set the server''s clock right.';
  end if;
  select a.lineage, a.floor, a.floor_at, fence._clock_term(a.floor, a.floor_at, clock_timestamp()), a.system_identifier, a.timeline,
    a.database_oid, a.started_at
  into lineage, floor, floor_at, next_token, system_identifier, timeline, database_oid, started_at
  from fence._authority a;
  highest_known := fence._highest_known();
  present_system_identifier := fence._current_system();
  present_timeline := fence._current_timeline();
  present_database_oid := fence._current_database()::oid;
  present_started_at := pg_postmaster_start_time();
  return next;
end
$$;
