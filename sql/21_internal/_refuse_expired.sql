-- LF002, unless the expiry that was read may be out of date: a REPEATABLE READ or SERIALIZABLE snapshot does not see a
-- renewal made after it. There the row is locked FOR SHARE, which PostgreSQL itself answers with 40001 if the row has a
-- newer version; if it has none, the lease has truly expired.
create function fence._refuse_expired(p_resource text, p_token text, p_table oid default null) returns void
language plpgsql
volatile
as $$
begin
  if pg_catalog.current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    perform from fence._lease l where l.resource = p_resource for share;
  end if;
  perform fence._refuse_claim('LF002', p_resource, p_token, p_table);
end
$$;
