-- What a row-scope guard says before a statement: LF004 without any claim; LF005 for a TRUNCATE, which no claim on single
-- rows covers. A logical replication worker passes.
create function fence._refuse_statement(p_table oid, p_operation text) returns void
language plpgsql
volatile
as $$
begin
  if fence._passes(p_table, case when fence._claims() is null then 'LF004' else 'LF005' end, null) then
    return;
  elsif p_operation = 'TRUNCATE' and fence._claims() is not null then
    perform fence._raise('LF005', pg_catalog.format('no claim covers TRUNCATE of %s', p_table::regclass),
      'Each row of the table belongs to a resource of its own; a TRUNCATE would remove rows of every one.',
      'Delete the rows of the resources that this transaction holds: delete from ... where ...', p_table);
  end if;
  perform fence._refuse_unclaimed(p_table);
end
$$;
