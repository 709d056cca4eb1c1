-- What ends a quarantine, for hints and the audit.
create function fence._quarantine_remedy(p_floor bigint) returns text
language sql
immutable
as $$
  select case
    when p_floor is not null then pg_catalog.format('Set the server''s clock right. Or, as an administrator of pyfence, with a floor above every '
      || 'token that anything has seen: select fence.confirm_lineage(%s);', p_floor)
    else 'Make sure that no other copy of this database is in use; then, as an administrator of pyfence: select fence.confirm_lineage();'
  end
$$;
