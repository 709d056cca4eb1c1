-- Makes a resource cover what its guards' templates name from now on. Its present lease ends: who holds it must ask again, for a token above those of all
-- rows. The rows' leases stay as they are, but for those that an earlier covering grant stands above: no write would be accepted under them. Waits out every grant in flight, which may not know of it yet.
-- Locks, in order: fence._authority EXCLUSIVE, the row '' of fence._covering, those leases of rows FOR NO KEY UPDATE, the covering lease FOR UPDATE. Bounded by the caller.
create function fence._begin_covering(p_covering text) returns void
language plpgsql
volatile
as $$
declare
  v_lease fence._lease;
begin
  lock table fence._authority in exclusive mode;
  update fence._covering c set token = c.token + 1 where c.resource = '';
  insert into fence._covering (resource, token) values (p_covering, 0) on conflict do nothing;
  for v_lease in
    select l.* from fence._rows_under(p_covering) l
    where l.secret_hash is not null and l.token <= (select c.token from fence._covering c where c.resource = p_covering)
    order by l.resource
  loop
    select l.* into v_lease from fence._lease l where l.resource = v_lease.resource for no key update;
    if v_lease.secret_hash is not null then
      perform fence._close(v_lease, pg_catalog.format('%s covers it now', p_covering));
    end if;
  end loop;
  select l.* into v_lease from fence._lease l where l.resource = p_covering for update;
  if not found then
    insert into fence._lease (resource, token, owner, ttl, acquired_at, expires_at, lineage, closed_reason)
    select p_covering, fence._next_token(0), session_user, interval '0', c.now, c.now, a.lineage, 'never granted'
    from (select pg_catalog.clock_timestamp() as now) c cross join fence._authority a;
    return;
  end if;
  if v_lease.secret_hash is not null then
    perform fence._close(v_lease, 'it covers other rows now');
  end if;
  update fence._lease l set token = fence._next_token(l.token) where l.resource = p_covering;
end
$$;
