-- Sessions that hold a lease within a transaction and have been idle for p_patience: they keep a takeover waiting. With the rights of the reader:
-- what others do is shown to pg_read_all_stats only; without it, the audit says how many it could not judge.
create function fence._audit_sessions(p_patience interval)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    with holders as (
      select a.pid, a.usename, a.application_name, a.state, a.state_change
      from pg_stat_activity a
      where a.pid in (
        select l.pid from pg_locks l
        where l.relation = to_regclass('fence._lease') and l.granted and l.mode in ('RowShareLock', 'RowExclusiveLock')
          and l.database = (select d.oid from pg_database d where d.datname = current_database()))
    )
    select 'warning', 'idle-holds-lease', format('backend %s', h.pid),
      format('%s (%s) is %s since %s and has locked leases: whoever wants one of them waits for it.', h.usename, h.application_name, h.state, h.state_change),
      format('select pg_terminate_backend(%s);', h.pid)
    from holders h
    where h.state like 'idle in transaction%' and h.state_change <= clock_timestamp() - p_patience
    union all
    select 'info', 'sessions-hidden', 'pg_stat_activity',
      format('%s sessions have locked leases, and what they do is not shown to %I.', count(*), current_user),
      format('grant pg_read_all_stats to %I;', current_user)
    from holders h
    where h.state is null
    having count(*) > 0;
end
$$;
