-- Locks a table and everything under it for DDL without stopping its writers for long: each try takes less than a second, and between tries the
-- queue behind it drains. An autovacuum gives way only to who waits for longer than deadlock_timeout: after the first try each table that is being vacuumed is waited
-- for alone, for 1.5 s. 55P03 after five tries, or at once if the caller had better not wait. A table that got another name meanwhile is
-- locked all the same. LF010 where it is gone, and above READ COMMITTED. Runs with the caller's rights.
create function fence._lock_table(p_table regclass, p_mode text, p_wait boolean default true) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '900ms'  -- below deadlock_timeout: on a tree it may hold the top while it waits for a part
as $$
declare
  v_how text := format('in %s mode%s', p_mode, case when not p_wait then ' nowait' end);
  v_name text;
  v_end timestamptz;
  v_member regclass;
begin
  perform fence._read_committed_only('this is changed', 'A snapshot taken before the lock would not see what somebody else changed meanwhile.', p_table);
  for v_try in 1 .. 5 loop
    if not exists (select from pg_class c where c.oid = p_table) then
      perform fence._raise('LF010', format('%s is gone', coalesce(v_name, p_table::text)), 'It was dropped at this moment.', 'Name a table that is there.');
    end if;
    v_name := p_table;
    begin
      -- lock_timeout begins anew with every table of a tree: one by one, so that each gets what is left. Then whatever has joined them.
      v_end := clock_timestamp() + interval '0.9 seconds';
      for v_member in
        select m.relid from fence._members(p_table) m join pg_class c on c.oid = m.relid
        where c.relkind <> 'f'  -- those cannot be locked
        order by m.depth, m.relid
      loop
        perform set_config('lock_timeout', greatest(1, extract(milliseconds from v_end - clock_timestamp())::integer)::text, true);
        execute format('lock table only %s %s', v_member, v_how);
      end loop;
      execute format('lock table %s %s', v_name, v_how);
      if v_name <> p_table::text then  -- the name is another table's by now
        raise undefined_table;
      end if;
      return;
    exception when lock_not_available or undefined_table or invalid_schema_name or syntax_error then  -- a part that is gone has no name but a number
      if v_try = 5 or not p_wait then
        perform fence._raise('55P03', format('could not lock %s', p_table),
          case when p_wait then 'Transactions that use it, or a VACUUM of it, stayed open through five tries of one second.'
            else 'Transactions that use it are open.' end,
          format('Try again; to see who holds it: select pid, query from pg_stat_activity where pid = any '
            || '(array(select pid from pg_locks where relation = %L::regclass and granted));', p_table), p_table);
      elsif v_try = 1 then
        perform fence._stop_vacuum(p_table, p_mode);
      end if;
      perform pg_sleep(0.1 * v_try);
    end;
  end loop;
end
$$;
