create view fence.violation_events as
select v.id, v.at, v.protected_table, v.code, v.resource, v.role, v.application, v.client, v.query_id, v.exempt
from fence._violation v;

comment on view fence.violation_events is
  'The violations one by one: transactions that were let pass (observe, or exempt) and would have been refused, with one of their resources.';
