-- The source of a table's guard function, all of it static SQL. One function serves every trigger of the table and its tree:
--   before a statement   table scope: the check. Row scope: called only where the transaction has no claim, and refuses
--   before truncate      table scope: the check. Row scope: refuses, no claim on single rows covers a whole table
--   after a statement    table scope, where writes are counted: did it touch a row? Row scope: every distinct resource of its rows must be covered. The rows are the transition table
--                        fence_rows (an update in a tree has fence_old_rows too); a relation of that name in pg_temp would stand in
--                        for it in a trigger that somebody made without one, and run its code with our rights
--   after a row          row scope: the resource that a row has left, where an update moved it to another. In a tree: both images of
--                        a row in a partition that has no statement triggers yet
--   before a row         a row about to leave its partition: both images. What becomes of it where it arrives is checked after the row.
--                        And stamps the claim's token on the row, where the guard has a token column; and, where writes are counted,
--                        tells a repeated insert before its unique key does
-- A key column or a token column that was renamed or dropped makes the queries fail: LF013.
create function fence._guard_source(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
declare
  v_in_tree boolean := exists (select from fence._guard_triggers(p_guard, p_table) t where t.old_rows and t.new_rows);
  v_old text;
  v_new text;
  v_both text;
  v_find text;
  v_leave text := '';
  v_stamp text := '';
  v_once text := '';
  v_turn text := '';
begin
  if p_guard.scope = 'table' then
    v_find := pg_catalog.format($source$%s
  v_names := array[%L];$source$,
      case when p_guard.writes <> 'many' then $source$
  if tg_when = 'AFTER' and tg_level = 'STATEMENT' then
    if pg_catalog.to_regclass('pg_temp.fence_rows') is not null then
      perform fence._refuse_shadow(tg_relid);
    elsif not exists (select from fence_rows) then
      return null;
    end if;
  end if;$source$ else '' end,
      fence._table_resource(p_guard));
    v_new := pg_catalog.quote_literal(fence._table_resource(p_guard));
  else
    select pg_catalog.format('(select %s) r', pg_catalog.string_agg('old.' || k.name, ', ')),
      pg_catalog.format('(select %s) r', pg_catalog.string_agg('new.' || k.name, ', ')),
      pg_catalog.format('(select %1$s from fence_rows union all select %1$s from fence_old_rows) r', pg_catalog.string_agg(k.name, ', '))
    into v_old, v_new, v_both
    from (select distinct pg_catalog.quote_ident(k.attname) as name from fence._key_columns(p_table, p_guard.template) k) k;
    v_old := fence._name_query(p_guard, p_table, v_old);
    v_new := fence._name_query(p_guard, p_table, v_new);
    v_find := pg_catalog.format($source$
  if tg_when = 'BEFORE' and tg_level = 'STATEMENT' then
    perform fence._refuse_statement(tg_relid, tg_op);
    return null;
  end if;
  begin
    if tg_level = 'ROW' then
      if tg_op <> 'INSERT' then
        v_names := array(%s);
      end if;
      if tg_op <> 'DELETE' and %L then
        v_name := (%s);
        if v_names <> array[v_name] then
          v_names := v_names || v_name;
        end if;
      end if;
    elsif pg_catalog.to_regclass('pg_temp.fence_rows') is not null or pg_catalog.to_regclass('pg_temp.fence_old_rows') is not null then
      perform fence._refuse_shadow(tg_relid);
    elsif tg_op = 'UPDATE' and %L then
      v_names := array(%s);
    else
      v_names := array(%s);
    end if;
  exception when undefined_column then
    perform fence._refuse_broken(tg_relid, sqlerrm);
  end;$source$,
      v_old, v_in_tree, v_new, v_in_tree, fence._name_query(p_guard, p_table, v_both),
      fence._name_query(p_guard, p_table, 'fence_rows r'));
  end if;

  if p_guard.writes <> 'many' then
    v_once := pg_catalog.format($source$
    perform fence._accept_once(%s, tg_relid, v_name, %L, tg_when = 'AFTER' or tg_level = 'ROW' or tg_op = 'TRUNCATE');$source$,
      p_guard.id, p_guard.writes);
  end if;
  if p_guard.writes <> 'many' and p_guard.scope = 'row' then
    v_turn := pg_catalog.format($source$
  if tg_name = '~0_fence_turn' then
    begin
      v_name := (%s);
    exception when undefined_column then
      perform fence._refuse_broken(tg_relid, sqlerrm);
    end;
    if fence._claim_on(fence._claims(), v_name) <> '' then
      v_ttl := fence._check_lease(tg_relid, v_name, %L);
      perform fence._accept_once(%s, tg_relid, v_name, %L, false);
    end if;
    return new;
  end if;$source$, v_new, p_guard.expiry, p_guard.id, p_guard.writes);
  end if;
  if v_in_tree or p_guard.scope = 'table' then  -- a row about to leave its partition
    v_leave := $source$
  if tg_name = '~~0_fence_leave' then
    if coalesce(pg_catalog.current_setting('fence.moving', true), '') = '' then
      perform pg_catalog.set_config('fence.moving', 'on', true);
    end if;
    return new;
  end if;$source$;
  end if;
  if p_guard.token_column is not null then
    v_stamp := pg_catalog.format($source$
  if tg_name = '~0_fence_stamp' then
    begin
      if pg_catalog.pg_typeof(new.%1$I) <> 'pg_catalog.int8'::pg_catalog.regtype then
        perform fence._refuse_broken(tg_relid, 'the token column is no bigint any more');
      end if;
      new.%1$I := fence._stamp((%2$s), new.%1$I);
    exception when undefined_column then
      perform fence._refuse_broken(tg_relid, sqlerrm);
    end;
    return new;
  end if;$source$, p_guard.token_column, v_new);
  end if;
  return pg_catalog.format($source$
-- Generated by fence.protect. Do not edit.
declare
  v_names text[] := '{}';
  v_name text;
  v_ttl interval;
begin%s%s%s
  foreach v_name in array v_names loop
    v_ttl := fence._check_lease(tg_relid, v_name, %L);%s
  end loop;%s
  return null;
end
$source$, v_stamp, v_turn, v_find, p_guard.expiry, v_once, v_leave);
end
$$;
