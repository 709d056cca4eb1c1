-- Begins a new lineage of tokens under the identity of this moment; the caller has locked the authority's row or table. Every lease of an older
-- one is dead from its commit on. Returns the floor: the clock, or p_floor if that is higher.
-- Code: LF009 where neither lies above everything that this database remembers.
create function fence._begin_lineage(p_kind text, p_why text, p_floor bigint default null) returns bigint
language plpgsql
volatile
as $$
declare
  v_now timestamptz := pg_catalog.clock_timestamp();
  v_floor bigint := greatest(fence._clock_number(v_now), p_floor);
  v_was fence._authority;
begin
  select a.* into v_was from fence._authority a;
  if not found then
    perform fence._refuse_missing();
  elsif v_floor <= fence._highest_known() then
    perform fence._refuse_quarantined(p_why, fence._highest_known() + 1);
  end if;
  update fence._authority a
  set lineage = a.lineage + 1, floor = v_floor, floor_at = v_now, system_identifier = fence._current_system(),
    timeline = fence._current_timeline(), database_oid = fence._current_database()::oid, lease_oid = 'fence._lease'::regclass,
    started_at = pg_catalog.pg_postmaster_start_time();
  perform fence._seal();
  if p_kind <> 'installed' then
    perform fence._record('lineage', null, null, null, pg_catalog.jsonb_build_object('lineage', v_was.lineage + 1, 'kind', p_kind, 'why', p_why,
      'floor', v_floor, 'previous_floor', v_was.floor, 'timeline', fence._current_timeline()));
  end if;
  return v_floor;
end
$$;
