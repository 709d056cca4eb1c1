-- A guard is about to look at the rows of a statement that it has seen begin: see fence._begin_statement.
create function fence._end_statement() returns void
language plpgsql
volatile
as $$
declare
  v_place tid;
begin
  update fence._open_statement s
  set open = s.open - 1
  where s.ctid = fence._statement_place() and s.xact = pg_catalog.pg_current_xact_id()
  returning s.ctid into v_place;
  perform pg_catalog.set_config('fence.statement', coalesce(v_place::text, ''), true);
end
$$;
