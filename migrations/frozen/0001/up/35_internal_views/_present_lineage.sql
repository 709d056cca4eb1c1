-- The authority's lineage, if it is the one of this server, timeline and database: no row while a change of identity is pending, and none on a
-- standby. Guards compare a lease's lineage with it. Functions here run with the rights of whoever reads a view above it.
create view fence._present_lineage as
select a.lineage, a.floor, a.floor_at, a.started_at
from fence._authority a
where a.xmin = a.stamp
  and a.timeline = fence._current_timeline()
  and a.database_oid::text = fence._current_database()
  and a.lease_oid = 'fence._lease'::pg_catalog.regclass
  and (a.started_at = pg_catalog.pg_postmaster_start_time() or fence._is_accepted_restart(a.system_identifier));

comment on view fence._present_lineage is 'Private. The present lineage; no row while a change of identity is pending.';
