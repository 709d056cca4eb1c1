-- Gives a place in the queue for a lease back and calls the next one: for a listener that is called for somebody who has stopped waiting.
-- Locks: as fence._call_waiter.
create function fence._decline(p_ticket bigint) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_resource text;
begin
  delete from fence._waiter w where w.ticket = p_ticket returning w.resource into v_resource;
  if found then
    perform fence._call_waiter(v_resource);
  end if;
end
$$;
