-- What acquire, renew, release and revoke begin with: a commit that is on disk before it is answered (a SET clause of the
-- function would be undone before the commit), and a bound on a client that freezes before it.
create function fence._begin_lease_change(p_limit interval) returns void
language plpgsql
volatile
as $$
begin
  if pg_catalog.current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform pg_catalog.set_config('synchronous_commit', 'on', true);
  end if;
  perform fence._bound_idle(p_limit);
end
$$;
