-- LF010 above READ COMMITTED, for what must not overlook what others did after the transaction's snapshot. p_what: what is done, as in 'a guard is changed'.
create function fence._read_committed_only(p_what text, p_why text, p_table oid default null) returns void
language plpgsql
stable
as $$
begin
  if fence._keeps_snapshot() then
    perform fence._raise('LF010',
      pg_catalog.format('%s at READ COMMITTED, not at %s', p_what, pg_catalog.upper(pg_catalog.current_setting('transaction_isolation'))), p_why,
      'begin isolation level read committed;', p_table);
  end if;
end
$$;
