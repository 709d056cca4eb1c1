-- Changes the triggers of a table's guard: locks the table in p_lock, runs p_query, a call of the private definer that does what needs the schema owner's
-- rights, and then the statements that it returns. Where one of those drops a trigger, which takes ACCESS EXCLUSIVE, everything is undone and the weaker lock let
-- go of before the stronger one is asked for: held meanwhile, it would keep the writers behind a reader, and a reader that goes on to write would deadlock.
-- Runs with the caller's rights. Locks: see fence._lock_table. Codes: those of fence._lock_table and of the query.
create function fence._change_guard(p_table regclass, p_lock text, p_query text) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lock text := p_lock;
  v_statement text;
begin
  loop
    begin
      perform fence._lock_table(p_table, v_lock);
      for v_statement in execute p_query loop
        if v_lock <> 'access exclusive' and starts_with(v_statement, 'drop trigger') then
          raise exception 'a stronger lock is needed' using errcode = 'FENCE';
        end if;
        execute v_statement;
      end loop;
      return;
    exception when sqlstate 'FENCE' then
      v_lock := 'access exclusive';
    end;
  end loop;
end
$$;
