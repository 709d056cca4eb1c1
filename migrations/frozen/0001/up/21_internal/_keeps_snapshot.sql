-- Whether this transaction reads one snapshot from its first statement to its end, as at REPEATABLE READ and SERIALIZABLE: others have gone on since.
create function fence._keeps_snapshot() returns boolean
language sql
stable
as $$
  select pg_catalog.current_setting('transaction_isolation') in ('repeatable read', 'serializable')
$$;
