-- Before a resource is granted that lies under a covering one: is the covering lease out of the way? reason null: yes, and stays so until this
-- transaction ends; the new token must be above p_token. 'held': it is live; 'draining': somebody asks for it, or a transaction that wrote
-- under it is open; it is closed by the same call, so that the next try gets in. The first grant after a covering lease changes that one's token, so that no
-- older snapshot can still write under it.
-- Locks, in order: the row of fence._covering FOR KEY SHARE SKIP LOCKED; the covering lease FOR UPDATE SKIP LOCKED, or FOR NO KEY UPDATE SKIP LOCKED;
-- where it is live by then, it is left unlocked.
create function fence._row_side(p_covering text, p_lineage bigint, out reason text, out lease fence._lease)
language plpgsql
volatile
as $$
declare
  v_granted bigint;
  v_wanted_until timestamptz;
begin
  select c.token, c.wanted_until into v_granted, v_wanted_until from fence._covering c where c.resource = p_covering for key share skip locked;
  if not found then
    reason := 'draining';
  end if;
  select l.* into lease from fence._lease l where l.resource = p_covering;
  if reason is not null then
    return;
  elsif fence._is_live(lease, p_lineage) then
    reason := 'held';
  elsif v_wanted_until between pg_catalog.clock_timestamp() and pg_catalog.clock_timestamp() + interval '5 seconds' then  -- later: the clock was set back
    reason := 'draining';
  elsif lease.token = v_granted then
    begin  -- where it turns out to have been renewed, its lock is given back
      select l.* into lease from fence._lease l where l.resource = p_covering for update skip locked;
      if found and not fence._is_live(lease, p_lineage) then
        if lease.secret_hash is not null then
          perform fence._close(lease, 'expired');
        end if;
        if lease.token = v_granted then  -- still: another row may have been granted since
          update fence._lease l set token = fence._next_token(l.token) where l.resource = p_covering returning l.* into lease;
        end if;
        return;
      elsif not found then
        select l.* into lease from fence._lease l where l.resource = p_covering for no key update skip locked;
        if not found then
          select l.* into lease from fence._lease l where l.resource = p_covering;
        elsif not fence._is_live(lease, p_lineage) and lease.secret_hash is not null then
          perform fence._close(lease, 'expired');
        end if;
        if not fence._is_live(lease, p_lineage) then
          reason := 'draining';
          return;
        end if;
      end if;
      raise no_data_found;
    exception when no_data_found then
      reason := 'held';
    end;
  end if;
end
$$;
