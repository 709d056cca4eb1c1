-- Before a covering resource is granted, whose lease the caller has locked FOR UPDATE: are the writers of single rows out of the way? Ends every row's
-- lease under it. draining false: they are, and stay so until this transaction ends; the new token must be above `above`. draining true: a transaction
-- that writes single rows is open; for five seconds from now no row under it is granted, so that the next try gets in.
-- So it is while a row's lease is being renewed, entered or closed: whoever has begun that may go on to what the caller has locked.
-- Locks, in order: the row of fence._covering FOR UPDATE SKIP LOCKED, or FOR NO KEY UPDATE; the open leases of rows FOR NO KEY UPDATE SKIP LOCKED.
create function fence._covering_side(p_covering text, out draining boolean, out above bigint)
language plpgsql
volatile
as $$
declare
  v_lease fence._lease;
begin
  perform from fence._covering c where c.resource = p_covering for update skip locked;
  draining := not found;
  for v_lease in select l.* from fence._rows_under(p_covering) l where l.secret_hash is not null loop
    select l.* into v_lease from fence._lease l where l.resource = v_lease.resource for no key update skip locked;
    draining := draining or not found;  -- the next try closes it
    if v_lease.secret_hash is not null then
      perform fence._close(v_lease, pg_catalog.format('superseded by %s', p_covering));
    end if;
  end loop;
  if draining then  -- nobody else changes that row: who would has to lock the covering lease first
    update fence._covering c set wanted_until = pg_catalog.clock_timestamp() + interval '5 seconds' where c.resource = p_covering;
  end if;
  above := coalesce((select max(l.token) from fence._rows_under(p_covering) l), 0);
end
$$;
