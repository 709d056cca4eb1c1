-- Takes what a claim that has just been presented rests on, before any data: what covers the resource, then its lease, as acquire does; and accepts the claim, or
-- raises. Returns how long the transaction may idle. From here to the end of the transaction nobody is granted either. The lease comes second: a job that covers it (fence.enter) has ended it by the time
-- that it was waited for.
-- A claim that is refused at first sight locks nothing of what covers it.
-- Locks, in order: rows of fence._covering FOR KEY SHARE, in name order; as fence._check_lease. Codes: as fence._check_lease; 40001 also for a snapshot older
-- than a covering grant.
create function fence._hold_claim(p_resource text) returns text
language plpgsql
volatile
as $$
declare
  v_covered boolean := exists (select from fence._guard g where g.covering is not null and p_resource ~ g.pattern);
  v_sound boolean := not v_covered or fence._refusal(p_resource, 'until_superseded') is null;
  v_idle interval;
begin
  if v_covered and v_sound then
    perform from fence._covering c
    where c.resource in (select g.covering from fence._guard g where g.covering is not null and p_resource ~ g.pattern)
    order by c.resource
    for key share of c;
  end if;
  v_idle := fence._check_lease(null, p_resource, 'until_superseded');
  if not v_sound then  -- it was granted at this moment
    return fence._hold_claim(p_resource);
  end if;
  return fence._bound_idle(v_idle);
end
$$;
