-- 40001 where this transaction's snapshot is older than the lease's last change, so that what it shows of the lease is no answer. Leaves nothing behind, no lock either.
-- A row that is locked FOR SHARE has PostgreSQL itself say so; one that the snapshot does not show at all is told by trying to insert it.
create function fence._check_snapshot(p_resource text) returns void
language plpgsql
volatile
as $$
begin
  if not fence._keeps_snapshot() then
    return;
  end if;
  begin
    perform from fence._lease l where l.resource = p_resource for share;
    if not found then
      insert into fence._lease (resource, token, owner, ttl, acquired_at, expires_at, lineage)
      values (p_resource, 0, '', interval '0', pg_catalog.now(), pg_catalog.now(), 0)
      on conflict do nothing;
    end if;
    raise no_data_found;
  exception when no_data_found then
    null;
  end;
end
$$;
