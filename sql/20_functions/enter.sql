-- A lease for this transaction alone, granted and presented in one call: for jobs that are nothing but SQL. Returns its token. Until the
-- transaction ends nobody else is granted the resource, and from its commit on the lease is over: no release, no renewal. p_ttl is
-- how long the transaction may write (a table's p_expiry decides) and how long it may idle.
-- Locks: as acquire, and the lease row FOR UPDATE until the transaction ends. Codes: LF009, LF010 as acquire; LF012 held by another;
-- 40001 above READ COMMITTED.
create function fence.enter(
  p_resource text,
  p_ttl interval default '30 seconds',
  p_owner text default null
) returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_answer record;
begin
  select a.* into strict v_answer from fence.acquire(p_resource, p_ttl, p_owner) a;
  if not v_answer.granted then
    perform fence._check_snapshot(p_resource);
    perform fence._raise('LF012', format('%L is held by another', p_resource),
      format('Owner %L, token %s, until %s (%s).', v_answer.owner, v_answer.token, v_answer.expires_at, v_answer.reason),
      case v_answer.reason when 'held' then format('Run the job again later: select fence.enter(%L);', p_resource)
        else format('Close it to new transactions of its old holder, in a transaction of its own: select * from fence.acquire(%L, ''1 ms''); '
          || 'then run the job again: select fence.enter(%L);', p_resource, p_resource) end);
  end if;
  update fence._lease l set entered = pg_current_xact_id() where l.resource = p_resource;
  perform fence._record('entered', p_resource, v_answer.token, v_answer.owner);
  perform fence.present(p_resource, v_answer.token, v_answer.secret);
  return v_answer.token;
end
$$;

comment on function fence.enter(text, interval, text) is
  'Grants and presents a lease for this transaction alone; over at its end. Returns the token. LF009, LF010, LF012.';
