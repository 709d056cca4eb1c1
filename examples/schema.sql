-- The tables of the examples, and their guards. Run it as the tables' owner, after `pyfence migrate up`.
create table sale (
  id bigint generated always as identity primary key,
  day date not null,
  amount numeric not null
);

-- One report a day. Whoever writes it holds the lease report:DAY; `token` shows under which token it was written.
create table report (
  day text primary key,
  total numeric not null,
  token bigint
);
select fence.protect('report', 'report:{day}', p_token_column => 'token');

-- Work for any number of workers. Anybody may ask for some; the result is written by whoever holds job:ID.
create table job (
  id bigint generated always as identity primary key,
  day date not null
);
create table result (
  job bigint primary key,
  total numeric not null
);
select fence.protect('result', 'job:{job}', p_writes => 'once');

-- What the scheduler has started: it alone, the one that holds the lease `scheduler`.
create table tick (
  day text primary key,
  started_at timestamptz not null default now()
);
select fence.protect('tick', 'scheduler');

-- Written by an old script that knows nothing of leases; see legacy_billing.sql.
create table invoice (
  day date primary key,
  total numeric not null
);
select fence.protect('invoice', 'nightly-billing');
