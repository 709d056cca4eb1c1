-- The timeline this server writes, as WAL file names begin; null on a standby. Right from the first moment of a promotion on, which
-- pg_control_checkpoint() is not.
create function fence._current_timeline() returns text
language sql
volatile
as $$
  select case when not pg_catalog.pg_is_in_recovery()
    then pg_catalog."left"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) end
$$;
