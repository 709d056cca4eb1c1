-- Changes the triggers of a table's guard: locks the table in p_lock, runs p_query, a call of the private definer that does what needs the schema owner's
-- rights, and then the statements that it returns. Where one of those drops a trigger, which takes ACCESS EXCLUSIVE, everything is undone and the weaker lock let
-- go of before the stronger one is asked for: held meanwhile, it would keep the writers behind a reader, and a reader that goes on to write would deadlock.
-- With triggers go the functions that no guard has use for any more.
-- So it is with what the query waits for: 0.2 s at a time, then the table is let go of and everything tried again, five times in all. A caller that had
-- better not wait, because it holds another table, fails at once. Runs with the caller's rights.
-- Locks: the table, see fence._lock_table; those of the query. Codes: those of the query; 55P03 the table, or what the query locks, stayed busy.
create function fence._change_guard(p_table regclass, p_lock text, p_query text, p_wait boolean default true) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'  -- below deadlock_timeout: who holds what is waited for may go on to the table
as $$
declare
  v_lock text := p_lock;
  v_locked boolean;
  v_tries integer := 0;
  v_statement text;
begin
  loop
    v_locked := false;
    begin
      perform fence._lock_table(p_table, v_lock, p_wait);
      v_locked := true;
      for v_statement in execute p_query loop
        if v_lock <> 'access exclusive' and starts_with(v_statement, 'drop trigger') then
          raise exception 'a stronger lock is needed' using errcode = 'FENCE';
        end if;
        execute v_statement;
      end loop;
      if v_lock = 'access exclusive' then  -- triggers are gone, and maybe the last of a guard's
        perform fence._drop_unused_functions();
      end if;
      return;
    exception
      when sqlstate 'FENCE' then
        v_lock := 'access exclusive';
      when lock_not_available then
        if not v_locked then
          raise;
        end if;
        v_tries := v_tries + 1;
        if v_tries = 5 or not p_wait then
          perform fence._raise('55P03', format('could not change the guard of %s', p_table),
            'What it takes of pyfence''s own tables stayed locked: by a job in fence.enter, the holder of the covering resource, '
              || 'an exemption or a migration that is not committed.',
            'Try again; to see who that is: select pid, usename, query from pg_stat_activity where pid in '
              || '(select l.pid from pg_locks l join pg_class c on c.oid = l.relation where c.relnamespace = ''fence''::regnamespace and l.granted);',
            p_table);
        end if;
        perform pg_sleep(0.2 * v_tries);
    end;
  end loop;
end
$$;
