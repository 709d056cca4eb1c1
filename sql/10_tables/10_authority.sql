-- The token authority: one row. A token is
--   greatest(last token of the resource + 1, floor + (clock - floor_at) / 100)      in microseconds, see fence._next_token
-- so every token of a lineage lies above the floor it began with. A lease of an older lineage is not live.
create table fence._authority (
  one boolean not null default true,
  lineage bigint not null,
  floor bigint not null,
  floor_at timestamptz not null,
  constraint _authority_pkey primary key (one),
  constraint _authority_one_check check (one)
);

comment on table fence._authority is
  'The token authority, one row: the present lineage, and the floor (microseconds since 1970) that it began with at floor_at.';

insert into fence._authority (lineage, floor, floor_at)
select 1, (extract(epoch from c.now) * 1000000)::bigint, c.now
from (select pg_catalog.clock_timestamp() as now) c;
