-- What a row-scope guard says before a statement: LF004 without any claim (the guard has asked before whether the writer may pass); LF005 for a
-- TRUNCATE, which no claim on single rows covers, unless the writer may pass.
create function fence._refuse_statement(p_table oid, p_operation text) returns void
language plpgsql
volatile
as $$
begin
  if p_operation <> 'TRUNCATE' or fence._claims() is null then
    perform fence._refuse_unclaimed(p_table);
  elsif not fence._passes(p_table, 'LF005', null) then
    perform fence._raise('LF005', pg_catalog.format('no claim covers TRUNCATE of %s', p_table::regclass),
      'Each row of the table belongs to a resource of its own; a TRUNCATE would remove rows of every one.',
      'Delete the rows of the resources that this transaction holds: delete from ... where ...', p_table);
  end if;
end
$$;
