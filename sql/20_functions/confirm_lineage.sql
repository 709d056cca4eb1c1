-- Accepts what this database is now, and begins a new lineage of tokens: ends a quarantine (LF009), or is a precaution after a restore that
-- left no trace. Every lease granted before is dead, from the next snapshot on. The floor is the clock, or p_floor if that is higher: a number above every token
-- that anything remembers, where the clock cannot be trusted. Returns the floor. For administrators.
-- Locks: the authority's table EXCLUSIVE: waits for grants in flight, in five tries of a second.
-- Codes: LF009 the clock is behind and p_floor does not help; LF010 bad argument; 55P03.
create function fence.confirm_lineage(p_floor bigint default null) returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_highest bigint;
begin
  perform fence._check_floor(p_floor);
  perform fence._begin_lease_change(interval '30 seconds');
  perform fence._lock_table('fence._authority', 'exclusive');
  v_highest := greatest(fence._highest_known(), fence._clock_number(clock_timestamp()));
  if p_floor - v_highest > 86400000000 then
    perform fence._raise('LF010', format('floor %s is more than a day ahead', p_floor),
      format('The highest number that this database knows, the clock among them, is %s.', v_highest),
      format('Confirm first, then raise the floor: select fence.confirm_lineage(%s); select fence.raise_token_floor(%s, ''why so high'', true);',
        v_highest + 1, p_floor));
  end if;
  return fence._begin_lineage('confirmed', coalesce((select c.why from fence._identity_change() c), 'an administrator asked for it'), p_floor);
end
$$;

comment on function fence.confirm_lineage(bigint) is
  'Accepts the database''s present identity and begins a new lineage; earlier leases are dead. Returns the floor. LF009, LF010, 55P03.';
