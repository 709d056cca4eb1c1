-- The token authority: one row. A token is
--   greatest(last token of the resource + 1, floor + (clock - floor_at) / 100)      in microseconds, see fence._next_token
-- so every token of a lineage lies above the floor it began with. A lease of an older lineage is not live.
--
-- The row remembers whose authority it is: server, timeline, database, lease table, start of the server; and in stamp its own xmin,
-- which a dump, a copy or an edit does not reproduce. Where one of them is no longer so (a promotion, a restore, another cluster)
-- nothing is granted or accepted under this row until a new lineage has begun. fence._seal writes the stamp, the view
-- fence._present_lineage compares. A revision that rewrites this table has to seal it again.
create table fence._authority (
  one boolean not null default true,
  lineage bigint not null,
  floor bigint not null,
  floor_at timestamptz not null,
  system_identifier bigint,
  timeline text,
  database_oid oid,
  lease_oid oid,
  started_at timestamptz,
  stamp xid,
  constraint _authority_pkey primary key (one),
  constraint _authority_one_check check (one)
);

comment on table fence._authority is
  'The token authority, one row: the present lineage, the floor (microseconds since 1970) that it began with at floor_at, and whose it is.';
comment on column fence._authority.system_identifier is 'Of the cluster; null where the owner of the schema may not read it.';
comment on column fence._authority.timeline is 'As WAL file names begin: eight hexadecimal digits.';
comment on column fence._authority.started_at is 'When the server that last issued tokens under this row was started.';
comment on column fence._authority.stamp is 'The row''s own xmin. Another value: the row was restored, copied or edited.';

-- What it is is filled in at the end of the installation, see 50_authority/first_lineage.sql.
insert into fence._authority (lineage, floor, floor_at)
select 0, 0, c.now
from (select pg_catalog.clock_timestamp() as now) c;
