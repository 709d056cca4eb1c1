-- The least floor for a new lineage, where the clock cannot give it because it is behind what this database remembers; null where it
-- can. After a mere restart the clock has to be where the tokens say it was. Reads all leases.
create function fence._clock_shortfall(p_kind text) returns bigint
language plpgsql
volatile
as $$
declare
  v_now timestamptz := pg_catalog.clock_timestamp();
  v_highest bigint := fence._highest_known();
  v_is_behind boolean;
begin
  if p_kind = 'restart' then
    select pg_catalog.max(l.token) > fence._clock_term(a.floor, a.floor_at, v_now) into v_is_behind
    from fence._authority a, fence._lease l
    where l.token < 9223372036854775807
    group by a.floor, a.floor_at;
  else
    v_is_behind := fence._clock_number(v_now) <= v_highest;
  end if;
  return case when v_is_behind then v_highest + 1 end;
end
$$;
