-- One row per resource that was ever acquired; rows are never deleted, a token never goes down.
--
-- unique (resource, token) makes the token a *key* column. That is what the locking rests on: a takeover changes a key and
-- so waits for every FOR KEY SHARE of a guarded transaction, and fails an older snapshot with 40001; a renewal or a
-- closing changes no key and neither waits for guarded transactions nor disturbs them. It must stay a plain unique
-- constraint: a partial, expression or INCLUDE index would not make the column a key.
create table fence._lease (
  resource text collate "C" not null,
  token bigint not null,
  secret_hash bytea,
  owner text not null,
  granted_to text,
  ttl interval not null,
  idle_timeout interval,
  acquired_at timestamptz not null,
  expires_at timestamptz not null,
  lineage bigint not null,
  closed_reason text,
  entered xid8,
  constraint _lease_pkey primary key (resource),
  constraint _lease_resource_token_key unique (resource, token)
) with (fillfactor = 50);

create index _lease_granted_to_idx on fence._lease (granted_to) where secret_hash is not null;

comment on table fence._lease is 'One row per resource ever acquired: its newest token and, while it is open, its holder.';
comment on column fence._lease.token is 'The newest token ever granted for the resource. Only grows.';
comment on column fence._lease.secret_hash is 'sha256 of the holder''s secret. Null: the lease is closed (released, revoked, or expired and asked for).';
comment on column fence._lease.ttl is 'What acquire was asked for; a renewal without a ttl of its own uses it.';
comment on column fence._lease.idle_timeout is 'The option of that name at the grant: how long a transaction under the lease may idle. Null: the ttl.';
comment on column fence._lease.lineage is 'The authority''s lineage at the grant. Not the present one: not live.';
comment on column fence._lease.granted_to is 'session_user of the grant: what fence.allow counts by. The owner is only a label.';
comment on column fence._lease.entered is 'The transaction that fence.enter granted it to: live in that one only. Null: an ordinary lease.';
comment on constraint _lease_resource_token_key on fence._lease is
  'Makes the token a key column: a takeover waits for guarded transactions, a heartbeat does not.';
