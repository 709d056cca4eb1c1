-- A guard has seen a statement begin, whose rows it looks at when the statement ends. The row's place is remembered in a setting, as looking for it would meet other
-- transactions at SERIALIZABLE; whoever changes that setting is not let commit.
create function fence._begin_statement(p_table oid) returns void
language plpgsql
volatile
as $$
declare
  v_place tid;
begin
  update fence._open_statement s
  set open = s.open + 1, protected_table = case s.open when 0 then p_table else s.protected_table end
  where s.ctid = fence._statement_place() and s.xact = pg_catalog.pg_current_xact_id()
  returning s.ctid into v_place;
  if not found then
    set constraints fence._open_statement_refused deferred;
    insert into fence._open_statement as s (xact, open, protected_table) values (pg_catalog.pg_current_xact_id(), 1, p_table)
    returning s.ctid into v_place;
  end if;
  perform pg_catalog.set_config('fence.statement', v_place::text, true);
end
$$;
