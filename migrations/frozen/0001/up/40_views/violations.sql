create view fence.violations as
select v.protected_table, v.code, v.role, v.application, v.client, v.query_id, v.exempt, pg_catalog.count(*) as count,
  pg_catalog.min(v.at) as first_at, pg_catalog.max(v.at) as last_at, pg_catalog.max(v.resource) as resource
from fence._violation v
group by v.protected_table, v.code, v.role, v.application, v.client, v.query_id, v.exempt;

comment on view fence.violations is
  'Who would break: transactions that were let pass (observe, or exempt) and would have been refused, by table, code and writer; resource is one of theirs.';
