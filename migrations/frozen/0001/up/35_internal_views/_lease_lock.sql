-- The transactions of this database that have locked rows of fence._lease, with the advisory locks they hold, one a row: fence._check_lease labels
-- with one what it accepts. Any role may take any advisory lock; a lock on the lease table comes only with fence's own functions. A prepared
-- transaction has no pid.
create view fence._lease_lock as
with locks as materialized (
  select k.locktype, k.relation, k.mode, k.objsubid, k.transactionid, k.virtualtransaction, k.pid,
    (k.classid::bigint << 32) | k.objid::bigint as label
  from pg_catalog.pg_locks k
  where k.granted
    and (k.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
      or k.locktype = 'transactionid')
)
select h.virtualtransaction, h.pid, a.label,
  array(select t.transactionid from locks t
    where t.locktype = 'transactionid' and t.mode = 'ExclusiveLock' and t.virtualtransaction = h.virtualtransaction) as transactions
from (
  select distinct k.virtualtransaction, k.pid
  from locks k
  where k.locktype = 'relation' and k.relation = 'fence._lease'::pg_catalog.regclass and k.mode in ('RowShareLock', 'RowExclusiveLock')) h
left join locks a
  on a.locktype = 'advisory' and a.objsubid = 1 and a.mode = 'ShareLock' and a.virtualtransaction = h.virtualtransaction;

comment on view fence._lease_lock is 'Private. Transactions that have locked leases, and the labels in pg_locks that say which.';
