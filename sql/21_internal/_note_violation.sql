-- Notes a write that is let pass and would have been refused: one line in the server log, which lasts, and one row, which shares the transaction's
-- fate; once for a table, a code and a transaction. Never raises, and waits for nothing: a row that cannot be added at once is left out.
-- Locks: fence._violation ROW EXCLUSIVE NOWAIT.
create function fence._note_violation(p_table oid, p_code text, p_resource text, p_exempt boolean) returns void
language plpgsql
volatile
as $$
declare
  v_xact text := pg_catalog.pg_current_xact_id()::text || E'\n';
  v_noted text := pg_catalog.current_setting('fence.noted', true);
  v_key text := pg_catalog.format(E'%s %s\n', p_table, p_code);
begin
  if not coalesce(pg_catalog.starts_with(v_noted, v_xact), false) then
    v_noted := v_xact;
  elsif pg_catalog.strpos(v_noted, E'\n' || v_key) > 0 then
    return;
  end if;
  perform pg_catalog.set_config('fence.noted', v_noted || v_key, true);
  perform fence._log('passed', p_code, p_table, p_resource);
  begin
    lock table fence._violation in row exclusive mode nowait;
    insert into fence._violation (at, protected_table, code, resource, role, application, client, query_id, exempt)
    select pg_catalog.clock_timestamp(), p_table::regclass, p_code, p_resource, session_user, pg_catalog.current_setting('application_name'),
      pg_catalog.inet_client_addr(), (select s.query_id from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s), p_exempt;
  exception when others then
    raise log 'pyfence {"event": "not noted", "sqlstate": "%"}', sqlstate;
  end;
end
$$;
