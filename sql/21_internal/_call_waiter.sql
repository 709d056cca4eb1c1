-- Whose turn it is for a resource: the ticket of the first waiter that is alive, null for none. Calls it, unless that is p_ticket itself: from its first call
-- on it has two seconds to ask. The second one is told to look, too: it comes in where the first one does not ask. Those that have not asked when they were due,
-- or whose listener is gone, lose their tickets. For somebody with a ticket, who has just asked, nobody is called twice.
-- Locks: rows of fence._waiter, those that nobody else has locked: it waits for nobody.
create function fence._call_waiter(p_resource text, p_ticket bigint default null) returns bigint
language plpgsql
volatile
as $$
declare
  v_waiter fence._waiter;
  v_first bigint;
  v_soon timestamptz := pg_catalog.clock_timestamp() + interval '2 seconds';
begin
  for v_waiter in select w.* from fence._waiter w where w.resource = p_resource order by w.ticket loop
    if v_waiter.due_at <= pg_catalog.clock_timestamp()
      or v_waiter.listener <> all (array(select a.pid from pg_catalog.pg_stat_get_activity(v_waiter.listener) a))
    then
      delete from fence._waiter w
      where w.ticket = (select x.ticket from fence._waiter x where x.ticket = v_waiter.ticket for update skip locked);
      continue;
    end if;
    if v_first is null then
      v_first := v_waiter.ticket;
      exit when v_first = p_ticket or p_ticket is not null and v_waiter.due_at <= v_soon;  -- it asks at this moment, or has been called already
      update fence._waiter w set due_at = v_soon
      where w.due_at > v_soon and w.ticket = (select x.ticket from fence._waiter x where x.ticket = v_first for update skip locked);
    end if;
    if v_waiter.listener is not null and v_waiter.ticket is distinct from p_ticket then
      perform pg_catalog.pg_notify('fence_' || v_waiter.listener, v_waiter.ticket::text);
    end if;
    exit when v_waiter.ticket <> v_first;
  end loop;
  return v_first;
end
$$;
