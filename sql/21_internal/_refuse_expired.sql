-- LF002; 40001 where the snapshot is older than a renewal.
create function fence._refuse_expired(p_resource text, p_token text, p_table oid default null) returns void
language plpgsql
volatile
as $$
begin
  perform fence._check_snapshot(p_resource);
  perform fence._refuse_claim('LF002', p_resource, p_token, p_table);
end
$$;
