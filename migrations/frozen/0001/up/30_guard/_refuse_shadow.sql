-- LF013: the session has a temporary relation called fence_rows, which could stand in for the guard's transition table.
create function fence._refuse_shadow(p_table oid) returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF013', pg_catalog.format('the guard on %s cannot run in this session', p_table::regclass),
    'A temporary relation called fence_rows hides the rows that the guard has to see.', 'drop table pg_temp.fence_rows;', p_table);
end
$$;
