create view fence.leases as
select l.resource, l.token, l.owner,
  case
    when l.secret_hash is null then 'closed'
    when l.lineage is distinct from a.lineage then 'superseded lineage'
    when l.entered is not null then 'ended'
    when l.expires_at <= pg_catalog.clock_timestamp() then 'expired'
    else 'held'
  end as state,
  l.acquired_at, l.expires_at, l.ttl, l.closed_reason, l.lineage,
  (select pg_catalog.count(*) from fence._waiter w where w.resource = l.resource and w.due_at > pg_catalog.clock_timestamp()) as waiting
from fence._lease l
cross join lateral (
  select case when pg_catalog.pg_is_in_recovery() then (select t.lineage from fence._authority t)
    else (select p.lineage from fence._present_lineage p) end as lineage) a;

comment on view fence.leases is 'Every resource ever acquired: its newest token, its holder, how many wait for it, and its state (held, expired, closed, ended: that of a past fence.enter).';
