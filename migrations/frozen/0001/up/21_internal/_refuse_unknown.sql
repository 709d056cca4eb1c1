-- LF006 (LF010 for what cannot be a name) for a resource without a lease row, unless the row may be newer than a REPEATABLE READ or SERIALIZABLE snapshot.
-- There a row is inserted: if one exists that the snapshot does not see, PostgreSQL itself answers 40001; if none does, the
-- error that follows takes the inserted one back.
create function fence._refuse_unknown(p_resource text, p_table oid default null) returns void
language plpgsql
volatile
as $$
begin
  perform fence._check_resource(p_resource);
  if pg_catalog.current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into fence._lease (resource, token, owner, ttl, acquired_at, expires_at, lineage)
    values (p_resource, 0, '', interval '0', pg_catalog.now(), pg_catalog.now(), 0)
    on conflict do nothing;
  end if;
  perform fence._raise('LF006', pg_catalog.format('no lease on %L was ever granted', p_resource),
    'The resource is unknown: nobody has acquired it.',
    pg_catalog.format('Take the lease first: select * from fence.acquire(%L);', p_resource), p_table);
end
$$;
