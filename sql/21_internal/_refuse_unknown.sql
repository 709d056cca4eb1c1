-- LF006 (LF010 for what cannot be a name) for a resource without a lease row; 40001 where the row is newer than the snapshot.
create function fence._refuse_unknown(p_resource text, p_table oid default null) returns void
language plpgsql
volatile
as $$
begin
  perform fence._check_resource(p_resource);
  perform fence._check_snapshot(p_resource);
  perform fence._raise('LF006', pg_catalog.format('no lease on %L was ever granted', p_resource),
    'The resource is unknown: nobody has acquired it.',
    pg_catalog.format('Take the lease first: select * from fence.acquire(%L);', p_resource), p_table);
end
$$;
