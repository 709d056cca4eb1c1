-- A view's functions run with the reader's rights: what others do is shown to pg_read_all_stats only.
create view fence.in_flight as
select g.resource, g.token, h.pid, x.gid, coalesce(s.usename, x.owner) as role, s.application_name as application, s.client_addr as client,
  case when h.pid is null then 'prepared' else s.state end as state, coalesce(s.state_change, x.prepared) as since,
  s.xact_start as began_at, s.query_start, s.wait_event
from (
  select distinct l.virtualtransaction, l.pid, l.transactions from fence._lease_lock l) h
left join (
  select l.virtualtransaction, c.resource, c.token
  from fence._lease_lock l
  join fence._lease c on fence._label(c.resource, c.token) = l.label) g using (virtualtransaction)
left join pg_catalog.pg_stat_activity s on s.pid = h.pid
left join pg_catalog.pg_prepared_xacts x
  on h.pid is null and x.transaction = any (h.transactions) and x.database = pg_catalog.current_database();

comment on view fence.in_flight is
  'Transactions that have locked leases, one a row and claim: who stands in the way of a takeover. Resource null: a change of a lease, or not known.';
