create view fence.accepted_writes as
select pg_catalog.format('%I.%I', g.schema_name, g.table_name) as protected_table, a.resource, a.token, a.sequence, a.at
from fence._accepted a join fence._guard g on g.id = a.guard;

comment on view fence.accepted_writes is
  'The last accepted write by table and resource, where the table counts writes (p_writes once or sequenced): token, sequence and when.';
