-- Notes a write to a table that is only observed. Not that of a logical replication worker, which would pass anyway.
create function fence._observe(p_table oid, p_code text, p_resource text default null) returns void
language plpgsql
volatile
as $$
begin
  if not fence._is_apply_worker() then
    perform fence._note_violation(p_table, p_code, p_resource, false);
  end if;
end
$$;
