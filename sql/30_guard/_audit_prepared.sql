-- Prepared transactions of this database that have locked a lease: nobody can take it over until somebody ends them. A row lock is not in
-- pg_locks, but the lock on the table that goes with it is.
create function fence._audit_prepared()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select case when old then 'error' else 'warning' end, 'prepared-holds-lease', x.gid,
      pg_catalog.format('Prepared by %s at %s, it has locked leases: whoever wants one of them waits until it is ended.', x.owner, x.prepared),
      pg_catalog.format('rollback prepared %L;', x.gid)
    from pg_catalog.pg_prepared_xacts x
    cross join lateral (select x.prepared < pg_catalog.clock_timestamp() - interval '5 minutes' as old) o
    where x.database = pg_catalog.current_database() and exists (
      select from pg_catalog.pg_locks l
      where l.relation = 'fence._lease'::regclass and l.mode in ('RowShareLock', 'RowExclusiveLock') and l.pid is null
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = x.database)
        and l.virtualtransaction = (
          select i.virtualtransaction from pg_catalog.pg_locks i
          where i.locktype = 'transactionid' and i.transactionid = x.transaction and i.pid is null and i.granted limit 1));
end
$$;
