-- The lineage to grant a lease under: the present one, after it has been made sure that it is this server's, this timeline's and
-- this database's. What acquire asks first; in the transaction that grants.
-- Locks: the authority's table ROW SHARE, so that a floor raised by an administrator waits for every grant in flight; where the identity has
-- changed, its row FOR UPDATE; above READ COMMITTED, its row FOR SHARE. Codes: LF009; 25006 on a standby; 40001 for a snapshot older than a change of the authority.
create function fence._lineage() returns bigint
language plpgsql
volatile
as $$
declare
  v_lineage bigint;
begin
  if pg_catalog.pg_is_in_recovery() then
    raise exception 'a standby grants no lease' using errcode = 'read_only_sql_transaction', schema = 'fence',
      hint = 'Connect to the primary: target_session_attrs=read-write';
  end if;
  lock table fence._authority in row share mode;
  for v_try in 1 .. 3 loop
    select p.lineage into v_lineage from fence._present_lineage p where p.started_at = pg_catalog.pg_postmaster_start_time();
    exit when found;
    perform fence._adopt();
  end loop;
  if fence._keeps_snapshot() then  -- not before: two who share the row cannot both adopt
    perform from fence._authority a for share;
  end if;
  if v_lineage is null then
    perform fence._refuse_quarantined('its row does not keep its seal');
  elsif fence._option_value('need_sync') is distinct from 'off' and pg_catalog.current_setting('synchronous_standby_names') = '' then
    perform fence._raise('LF009', 'no lease is granted without a synchronous standby',
      'The option need_sync is on, and synchronous_standby_names is empty.',
      'Set synchronous_standby_names. Or, as an administrator of pyfence, to go on without: '
        || 'select fence.set_option(''need_sync'', ''off'', ''no standby for now'');');
  end if;
  return v_lineage;
end
$$;
