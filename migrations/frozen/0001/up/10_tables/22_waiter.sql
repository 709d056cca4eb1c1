-- Who waits for a lease, in the order they came. Only a matter of turns: the lease row alone decides who gets it.
create table fence._waiter (
  ticket bigint generated always as identity,
  resource text collate "C" not null,
  listener integer,
  due_at timestamptz not null,
  constraint _waiter_pkey primary key (ticket)
);

create index _waiter_resource_ticket_idx on fence._waiter (resource, ticket);

comment on table fence._waiter is 'Who waits for a lease, in the order they came. One row a waiting acquire.';
comment on column fence._waiter.listener is 'The backend that listens on the channel fence_<pid> for its ticket. Null: it asks by itself, about once a second.';
comment on column fence._waiter.due_at is 'When it has asked again at the latest; whoever has not is skipped.';
