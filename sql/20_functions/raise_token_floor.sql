-- After its commit no token at or below p_floor is granted: for a destination that remembers a higher token than this database knows. Waits
-- for the grants in flight; leases that are held go on. A floor more than a day ahead of the clock needs p_force: nothing
-- takes it down again. Returns the floor in force. For administrators.
-- Locks: the authority's table EXCLUSIVE, in five tries of a second. Codes: LF009 as acquire, LF010 bad argument, 55P03.
create function fence.raise_token_floor(p_floor bigint, p_reason text, p_force boolean default false) returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz;
  v_floor bigint;
begin
  if p_floor is null then
    perform fence._raise('LF010', 'a floor is needed', 'The floor is null.', 'Pass the highest token that anything remembers.');
  end if;
  perform fence._check_floor(p_floor);
  perform fence._check_reason(p_reason, format('select fence.raise_token_floor(%s, ''restored from an export'');', p_floor));
  if p_floor > fence._clock_number(clock_timestamp()) + 86400000000 and p_force is not true then
    perform fence._raise('LF010', format('floor %s is more than a day ahead of the clock', p_floor),
      'Tokens are microseconds since 1970. A floor is never taken down again.',
      format('If it is meant: select fence.raise_token_floor(%s, %L, true);', p_floor, p_reason));
  end if;
  perform fence._begin_lease_change(interval '30 seconds');
  perform fence._lock_table('fence._authority', 'exclusive');
  perform fence._lineage();
  v_now := clock_timestamp();
  update fence._authority a set floor = greatest(p_floor + 1, fence._clock_term(a.floor, a.floor_at, v_now)), floor_at = v_now
  returning a.floor into strict v_floor;
  perform fence._seal();
  perform fence._record('floor', null, null, null, jsonb_build_object('floor', v_floor, 'asked', p_floor, 'reason', p_reason));
  return v_floor;
end
$$;

comment on function fence.raise_token_floor(bigint, text, boolean) is
  'From its commit on no token at or below the floor is granted. More than a day ahead only with p_force. LF009, LF010, 55P03.';
