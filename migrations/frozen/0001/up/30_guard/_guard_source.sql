-- The source of a table's guard function, all of it static SQL. One function serves every trigger of the table and its tree:
--   before a statement   table scope: the check. Row scope: refuses where the transaction has no claim
--   before truncate      table scope: the check. Row scope: the check of the covering claim; without one it refuses
--   after a statement    table scope, where writes are counted: did it touch a row? Row scope: every distinct resource of its rows must be covered
--   after a row          0_fence_stopped: the check, for a statement that may have been stopped before the triggers after it. Row scope: both images of a row that an update moved to another resource, and in a tree of
--                        a row in a partition that has no statement triggers yet
--   before a row         a row about to leave its partition: both images. What becomes of it where it arrives is checked after the row.
--                        And stamps the claim's token on the row, where the guard has a token column; and, where writes are counted,
--                        tells a repeated insert before its unique key does
-- A guard that only observes has another: fence._observe_source.
create function fence._guard_source(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
declare
  v_name text := fence._written_under(p_guard, p_table);
  v_covered text := '';
  v_stamp text := '';
  v_turn text := '';
  v_before text := '';
  v_touched text := '';
  v_once text := '';
  v_members text := '';
  v_leave text := '';
  v_stopped text := '';
  v_return text := 'return null;';
begin
  if p_guard.mode = 'observe' then
    return fence._observe_source(p_guard, p_table);
  end if;
  if p_guard.covering is not null then
    v_covered := pg_catalog.format($source$
  v_covered := coalesce(fence._claim_on(fence._claims(), %L) <> '', false);$source$, p_guard.covering);
    v_members := pg_catalog.format($source$
  if not v_covered then
    perform fence._check_covering(tg_relid, %L, v_names);
  end if;$source$, p_guard.covering);
  end if;
  if p_guard.scope = 'row' or p_guard.writes <> 'many' then
    -- What a client runs itself is never stopped: it has no context but this function's.
    v_stopped := pg_catalog.format($source$
  if tg_name = '0_fence_stopped' or tg_when = 'BEFORE' and tg_level = 'STATEMENT' and tg_op <> 'TRUNCATE' then
    get diagnostics v_context = pg_context;
    if pg_catalog.strpos(v_context, E'\n') = 0 then
      if tg_name = '0_fence_stopped' then
        return null;
      end if;
    elsif tg_name <> '0_fence_stopped' and fence._is_unprepared(tg_relid, %s) then
      perform fence._refuse_unprepared(tg_relid);
    end if;
  end if;$source$, p_guard.id);
  end if;
  if p_guard.token_column is not null then
    v_stamp := pg_catalog.format($source$
  if tg_name = '~0_fence_stamp' then
    begin
      if pg_catalog.pg_typeof(new.%1$I) <> 'pg_catalog.int8'::pg_catalog.regtype then
        perform fence._refuse_broken(tg_relid, 'the token column is no bigint any more');
      end if;
      new.%1$I := coalesce(fence._stamp(%2$s), case
        when %3$s then new.%1$I
        when tg_op = 'UPDATE' then old.%1$I
      end);
    exception when undefined_column then
      perform fence._refuse_broken(tg_relid, sqlerrm);
    end;
    return new;
  end if;$source$, p_guard.token_column, v_name, case p_guard.inserts when 'allow' then $source$tg_op = 'INSERT' or $source$ else '' end
    || pg_catalog.format($source$fence._may_stamp(%s)$source$, p_guard.id));
  end if;
  if p_guard.writes <> 'many' then
    v_once := pg_catalog.format($source$
    perform fence._accept_once(%s, tg_relid, v_name, %L, tg_when = 'AFTER' or tg_level = 'ROW' or tg_op = 'TRUNCATE');$source$,
      p_guard.id, p_guard.writes);
    if p_guard.scope = 'row' then
      v_turn := pg_catalog.format($source$
  if tg_name = '~0_fence_turn' then
    begin
      v_name := %s;
    exception when undefined_column then
      perform fence._refuse_broken(tg_relid, sqlerrm);
    end;
    if fence._claim_on(fence._claims(), v_name) <> '' then
      if fence._check_lease(tg_relid, v_name, %L) is not null then
        perform fence._accept_once(%s, tg_relid, v_name, %L, false);
      end if;
    end if;
    return new;
  end if;$source$,
        v_name, p_guard.expiry, p_guard.id, p_guard.writes);
    else
      v_touched := $source$
  if tg_when = 'AFTER' and tg_level = 'STATEMENT' then
    if pg_catalog.to_regclass('pg_temp.fence_rows') is not null then
      perform fence._refuse_shadow(tg_relid);
    elsif not exists (select from fence_rows) then
      return null;
    end if;
  end if;$source$;
    end if;
  end if;
  if p_guard.scope = 'row' then
    v_before := $source$
  if tg_when = 'BEFORE' and tg_level = 'STATEMENT' and (tg_op <> 'TRUNCATE' or not v_covered) then
    if tg_op = 'TRUNCATE' or fence._claims() is null then
      perform fence._refuse_statement(tg_relid);
      return null;  -- its writer may pass
    end if;
    return null;
  end if;$source$;
  end if;
  if exists (select from fence._guard_triggers(p_guard, p_table) t where t.name = '~~0_fence_leave') then
    v_leave := $source$
  if tg_name = '~~0_fence_leave' and coalesce(pg_catalog.current_setting('fence.moving', true), '') = '' then
    perform pg_catalog.set_config('fence.moving', 'on', true);
  end if;$source$;
    v_return := $source$if tg_name = '~~0_fence_leave' then
    return new;
  end if;
  return null;$source$;
  end if;
  return pg_catalog.concat($source$
-- Generated by fence.protect. Do not edit.
declare
  v_names text[] := '{}';
  v_name text;
  v_covered boolean := false;
  v_context text;
begin$source$, v_stopped, v_covered, v_stamp, v_turn, v_leave, v_before, pg_catalog.format($source$
  if fence._claims() is null and fence._passes(tg_relid, 'LF004', null) then
    %s
  end if;$source$, pg_catalog.replace(v_return, E'\n', E'\n  ')), v_touched, fence._find_source(p_guard, p_table), pg_catalog.format($source$
  foreach v_name in array v_names loop
    if fence._check_lease(tg_relid, v_name, %L) is null then  -- its writer may pass; what it claims was not believed
      v_names := pg_catalog.array_remove(v_names, v_name);
      continue;
    end if;%s
  end loop;%s
  %s
end
$source$, p_guard.expiry, v_once, v_members, v_return));
end
$$;
