-- Numbers for monitoring, one a row. Cheap: counts of leases, of guards, of events; no audit.
create view fence.metrics as
select 'leases'::text as metric, 'state'::text as label_name, s.state as label, (
    select pg_catalog.count(*) from fence.leases l where l.state = s.state)::float8 as value
from pg_catalog.unnest(array['held', 'expired', 'ended', 'closed', 'superseded lineage']) s (state)
union all
select 'events', 'event', h.event, pg_catalog.count(*)::float8 from fence._history h group by h.event
union all
select 'violations_last_hour', 'code', v.code, pg_catalog.count(*)::float8
from fence._violation v where v.at >= pg_catalog.clock_timestamp() - interval '1 hour' group by v.code
union all
select 'guards', 'mode', m.mode, (select pg_catalog.count(*) from fence._guard g where g.mode = m.mode)::float8
from pg_catalog.unnest(array['enforce', 'observe']) m (mode)
union all
select 'guards_not_armed', null, null, pg_catalog.count(*)::float8
from fence._guard g cross join lateral fence._guard_state(g.id) s where not s.armed
union all
select 'lineage', null, null, a.lineage::float8 from fence._authority a
union all
select 'identity_changed', null, null, case when pg_catalog.pg_is_in_recovery() or exists (select from fence._present_lineage) then 0 else 1 end
union all
select 'in_flight', null, null, pg_catalog.count(distinct l.virtualtransaction)::float8 from fence._lease_lock l
union all
select 'waiting', null, null, pg_catalog.count(*)::float8 from fence._waiter w where w.due_at > pg_catalog.clock_timestamp()
union all
select 'seconds_until_first_expiry', null, null,
  pg_catalog.date_part('epoch', pg_catalog.min(l.expires_at) - pg_catalog.clock_timestamp())::float8
from fence.leases l where l.state = 'held';

comment on view fence.metrics is
  'Numbers for monitoring, one a row: leases by state, events in the history (prune takes them away), violations of the last hour by code, guards by mode, guards not armed, the lineage, transactions in flight, who waits.';
