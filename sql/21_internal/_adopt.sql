-- The server, the timeline or the database is not the one that the authority's row remembers: begins a new lineage, or after a mere restart
-- goes on, where the options and the clock allow it. Nothing happens where somebody else has done it meanwhile.
-- Locks: the authority's row FOR UPDATE, until the transaction ends. Code: LF009.
create function fence._adopt() returns void
language plpgsql
volatile
as $$
declare
  v_kind text;
  v_why text;
  v_floor bigint;
begin
  perform from fence._authority a for update;
  select c.kind, c.why into v_kind, v_why from fence._identity_change() c;
  if v_kind is null then
    return;
  elsif v_kind = 'missing' then
    perform fence._refuse_missing();
  elsif fence._waits_for_operator(v_kind) then
    perform fence._refuse_quarantined(v_why);
  end if;
  v_floor := fence._clock_shortfall(v_kind);
  if v_floor is not null then
    perform fence._refuse_quarantined(v_why, v_floor);
  elsif v_kind = 'restart' then
    update fence._authority a set started_at = pg_catalog.pg_postmaster_start_time();
    perform fence._seal();
    perform fence._record('restart', null, null, null, pg_catalog.jsonb_build_object('why', v_why));
  else
    perform fence._begin_lineage(v_kind, v_why);
  end if;
end
$$;
