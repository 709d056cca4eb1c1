-- Covering resources: their holder may write every row of the tables that name them (fence.protect, p_covering). Two locks keep the two kinds of
-- holder apart. Who writes under the covering lease has its row of fence._lease FOR KEY SHARE, as under any lease; who writes under a row's lease has
-- the row of this table FOR KEY SHARE too. A covering grant takes both FOR UPDATE and changes both tokens, which are key columns; a row's grant after it
-- takes the covering lease's FOR UPDATE once and changes that token: so each waits for the writers of the other kind, and old snapshots get 40001.
-- A row's token is good only above the token here. The row named '' counts the changes of what covers what.
create table fence._covering (
  resource text collate "C" not null,
  token bigint not null,
  wanted_until timestamptz,
  constraint _covering_pkey primary key (resource),
  constraint _covering_resource_token_key unique (resource, token)
) with (fillfactor = 50);

comment on table fence._covering is 'One row per covering resource: what the writers of single rows lock, and the token of its last grant.';
comment on column fence._covering.token is 'The token of the last covering grant. The lease''s own is higher once a row was granted after it.';
comment on column fence._covering.wanted_until is 'Somebody asked for the covering lease while rows were being written: no row is granted before this.';

insert into fence._covering (resource, token) values ('', 0);
