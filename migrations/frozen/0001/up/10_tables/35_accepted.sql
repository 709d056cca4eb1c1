-- Guards with p_writes 'once' or 'sequenced': the last write that each accepted, per resource. A row of its own, not a column of the
-- lease: writers of a resource take turns on it, heartbeats must not.
create table fence._accepted (
  guard integer not null,
  resource text collate "C" not null,
  token bigint not null,
  sequence bigint,
  xact xid8 not null,
  at timestamptz not null,
  constraint _accepted_pkey primary key (guard, resource)
) with (fillfactor = 50);

comment on table fence._accepted is 'The last accepted write per guard and resource, where a guard counts writes.';
comment on column fence._accepted.xact is 'The transaction that made it: its later statements belong to the same write.';
