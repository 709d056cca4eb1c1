-- At the end of a transaction, or at SET CONSTRAINTS: LF005 where a statement was stopped before its guard could look at the rows. Else the row goes.
create function fence._refuse_open_statement() returns trigger
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_table regclass;
begin
  delete from fence._open_statement s where s.ctid = fence._statement_place() and s.id = new.id and s.open = 0;
  if not found then
    delete from fence._open_statement s where s.id = new.id and s.open = 0;
  end if;
  if not found then
    select s.protected_table into v_table from fence._open_statement s where s.id = new.id;
    perform fence._raise('LF005', format('a write to %s was stopped before its guard could look at the rows', v_table),
      'It was run with a row limit and RETURNING, at which PostgreSQL fires no trigger after the statement.',
      'Run it to its end: without the number in plpy.execute(query, number), spi_exec_query(query, number) or spi_exec -count number.', v_table);
  end if;
  return null;
end
$$;
