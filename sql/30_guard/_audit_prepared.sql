-- Prepared transactions of this database that have locked a lease: nobody can take it over until somebody ends them. A row lock is not in
-- pg_locks, but the lock on the table that goes with it is.
create function fence._audit_prepared()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select distinct case when i.since < pg_catalog.clock_timestamp() - interval '5 minutes' then 'error' else 'warning' end,
      'prepared-holds-lease', i.gid,
      pg_catalog.format('Prepared by %s at %s, it has locked leases: whoever wants one of them waits until it is ended.', i.role, i.since),
      pg_catalog.format('rollback prepared %L;', i.gid)
    from fence.in_flight i
    where i.gid is not null;
end
$$;
