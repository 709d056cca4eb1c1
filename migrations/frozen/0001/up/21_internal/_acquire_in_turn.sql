-- fence.acquire for somebody who waits: gives way to those who came before. For the clients; the same answer, with the waiter's ticket.
--   p_ticket null   the first request: whoever waits goes first, but no place in the queue yet
--   p_ticket 0      a new place at the end; else the place that an earlier answer named, even where it was skipped meanwhile
--   p_listener      the backend that listens on channel fence_<pid> for the ticket; null: the caller asks about once a second
-- Whoever has its place with a listener is called by release and revoke, and by others who find the lease free, and needs to ask
-- again only when the answer's retry_in is over. A grant ends the place.
-- A release in flight does not see a new place: who has got one asks again within a second. A lock on the lease would do, too, and have its holder wait for a
-- stranger's transaction.
-- Locks, in order: the waiter's row; for a new place or listener as fence._check_allowance; as fence._call_waiter; as fence.acquire.
-- Codes: as fence.acquire.
create function fence._acquire_in_turn(p_resource text, p_ttl interval, p_owner text, p_ticket bigint, p_listener integer)
returns table (
  granted boolean,
  resource text,
  token bigint,
  secret text,
  owner text,
  expires_at timestamptz,
  reason text,
  retry_in interval,
  ticket bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  v_ticket bigint := p_ticket;
  v_due_at timestamptz := clock_timestamp() + case when p_listener is null then interval '5 seconds' else interval '40 seconds' end;
  v_new boolean := false;
  v_alone boolean := pg_current_xact_id_if_assigned() is null;  -- this transaction has changed nothing before
  v_lease fence._lease;
  v_answer record;
begin
  perform fence._check_resource(p_resource);
  perform fence._bound_idle(interval '30 seconds');
  if p_ticket is not null then
    update fence._waiter w set due_at = v_due_at
    where w.ticket = p_ticket and w.resource = p_resource and w.listener is not distinct from p_listener;
    if not found then
      perform fence._check_allowance(p_resource);
      insert into fence._waiter as w (ticket, resource, listener, due_at) overriding system value
      values (coalesce(nullif(p_ticket, 0), nextval('fence._waiter_ticket_seq')), p_resource, p_listener, v_due_at)
      on conflict (ticket) do update set listener = excluded.listener, due_at = excluded.due_at where w.resource = excluded.resource
      returning w.ticket into v_ticket;
      -- What waiters have left behind on resources that nobody asks for any more.
      delete from fence._waiter w
      where w.ticket = any (array(
        select x.ticket from fence._waiter x where x.due_at < clock_timestamp() - interval '1 minute'
        order by x.ticket limit 10 for update skip locked));
      v_new := true;
    end if;
  end if;
  select l.* into v_lease from fence._lease l where l.resource = p_resource;
  if found and fence._is_live(v_lease, (select p.lineage from fence._present_lineage p)) is not true then
    if fence._call_waiter(p_resource, v_ticket) is distinct from v_ticket then
      perform set_config('synchronous_commit', 'off', true) where v_alone;
      return query select false, p_resource, v_lease.token, null::text, v_lease.owner, v_lease.expires_at, 'queued', interval '2 seconds', v_ticket;
      return;
    end if;
  end if;
  select a.* into strict v_answer from fence.acquire(p_resource, p_ttl, p_owner) a;
  if v_answer.granted then
    delete from fence._waiter w where w.ticket = v_ticket;
  else
    perform set_config('synchronous_commit', 'off', true) where v_alone;
    if v_new or exists (select from fence._guard g where g.covering is not null and p_resource ~ g.pattern) then
      -- A release in flight does not know a new place, and nobody is called when a covering lease ends.
      v_answer.retry_in := least(v_answer.retry_in, interval '1 second');
    end if;
  end if;
  return query select v_answer.granted, v_answer.resource, v_answer.token, v_answer.secret, v_answer.owner, v_answer.expires_at,
    v_answer.reason, v_answer.retry_in, v_ticket;
end
$$;
