-- The options of this database, each with its present value. fence.set_option writes them.
create table fence._option (
  name text collate "C" not null,
  value text not null,
  allowed text[],
  description text not null,
  reason text,
  changed_at timestamptz,
  changed_by text,
  constraint _option_pkey primary key (name),
  constraint _option_value_check check (allowed is null or value = any (allowed))
);

comment on table fence._option is 'Options: name, present value, what it may be, and why and by whom it was last changed.';

insert into fence._option (name, value, allowed, description)
values
  ('lineage_policy', 'auto', '{auto,confirm}',
    'After a change of identity (promotion, restore, copy): auto begins a new lineage at the next acquire, confirm waits for fence.confirm_lineage().'),
  ('on_restart', 'accept', '{accept,confirm}',
    'After a restart of the server, which may be a volume snapshot or a base backup: accept goes on, confirm waits for fence.confirm_lineage().'),
  ('need_sync', 'off', '{off,on}',
    'on: grants no lease while synchronous_standby_names is empty.'),
  ('idle_timeout', 'ttl', null,
    'How long a transaction that has presented a claim may idle before the server ends it: ttl, that of the lease, or a length such as 5 min. For leases granted from then on.');

comment on column fence._option.allowed is 'The values there are; null: a length of time, or ttl.';
