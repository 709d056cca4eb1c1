-- What happened to leases and guards, and who did it. Renewals are not recorded.
create table fence._history (
  id bigint generated always as identity,
  at timestamptz not null,
  event text not null,
  resource text collate "C",
  token bigint,
  owner text,
  role text not null,
  application text,
  client inet,
  detail jsonb,
  constraint _history_pkey primary key (id)
);

create index _history_resource_id_idx on fence._history (resource, id);

comment on table fence._history is 'Grants, closings and changes of guards, with actor. Written in the transaction of the event.';
comment on column fence._history.role is 'session_user.';
