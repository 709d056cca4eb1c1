-- What a row-scope guard says before a statement, unless the writer may pass: LF004 without any claim; else it is a TRUNCATE, which no claim on
-- single rows covers: LF005.
create function fence._refuse_statement(p_table oid) returns void
language plpgsql
volatile
as $$
begin
  if fence._claims() is null then
    if not fence._passes(p_table, 'LF004', null) then
      perform fence._refuse_unclaimed(p_table);
    end if;
  elsif not fence._passes(p_table, 'LF005', null) then
    perform fence._raise('LF005', pg_catalog.format('no claim covers TRUNCATE of %s', p_table::regclass),
      'Each row of the table belongs to a resource of its own; a TRUNCATE would remove rows of every one.',
      'Delete the rows of the resources that this transaction holds: delete from ... where ...'
        || coalesce(pg_catalog.format('; or present the lease that covers them all: select * from fence.acquire(%L);', (fence._guard_of(p_table)).covering), ''),
      p_table);
  end if;
end
$$;
