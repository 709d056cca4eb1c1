-- The part of a guard's function that finds out which resources the event at hand touches: v_names, each once, in name order; null stands for a row
-- whose key is null. The rows of a statement are the transition table fence_rows (an update has fence_old_rows too); a relation of that
-- name in pg_temp would stand in for it in a trigger that somebody made without one, and run its code with our rights. Under a covering
-- claim that resource alone, and null where a row's key is; nothing, where writes are counted and there is no row. One row needs neither sorting nor telling apart, which cost more than its name. A key
-- column that was renamed or dropped makes the queries fail: LF013.
create function fence._find_source(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
declare
  v_both text;
  v_new_null text;
  v_null text;
  v_covered text := '';
begin
  if p_guard.scope = 'table' then
    return pg_catalog.format($source$
  v_names := array[%L];$source$, fence._table_resource(p_guard));
  end if;
  select pg_catalog.format('(select %1$s from fence_rows r union all select %1$s from fence_old_rows r) r', pg_catalog.string_agg('r.' || k.name, ', ')),
    pg_catalog.string_agg(pg_catalog.format('new.%s is null', k.name), ' or '),
    pg_catalog.string_agg(pg_catalog.format('r.%s is null', k.name), ' or ')
  into v_both, v_new_null, v_null
  from (
    select distinct pg_catalog.quote_ident(k.attname) as name from fence._key_columns(p_table, p_guard.template) k) k;
  if p_guard.covering is not null then
    v_covered := pg_catalog.format($source$if v_covered then
      v_names := array[%L];%s%s
    els$source$, p_guard.covering, case p_guard.writes when 'many' then '' else $source$
      if tg_when = 'AFTER' and tg_level = 'STATEMENT' then
        v_names := array(select v_names[1] from fence_rows r limit 1);
      end if;$source$ end, pg_catalog.format($source$
      if tg_level = 'ROW' and tg_op <> 'DELETE' then
        if %s then
          v_names := pg_catalog.array_append(v_names, null);
        end if;
      elsif tg_when = 'AFTER' and tg_op <> 'DELETE' then
        if exists (select from fence_rows r where %s) then
          v_names := pg_catalog.array_append(v_names, null);
        end if;
      end if;$source$, v_new_null, v_null));
  end if;
  return pg_catalog.format($source$
  begin
    if tg_level = 'STATEMENT'
      and (pg_catalog.to_regclass('pg_temp.fence_rows') is not null or pg_catalog.to_regclass('pg_temp.fence_old_rows') is not null)
    then
      perform fence._refuse_shadow(tg_relid);
    end if;
    %sif tg_level = 'ROW' then
      if tg_op <> 'INSERT' then
        v_names := array[%s];
      end if;
      if tg_op <> 'DELETE' then
        v_name := %s;
        if v_names <> array[v_name] then
          v_names := v_names || v_name;
        end if;
      end if;
    elsif tg_op = 'UPDATE' then
      v_names := array(%s);
    else
      v_names := array(select %s from fence_rows r limit 2);
      if pg_catalog.cardinality(v_names) > 1 then
        v_names := array(%s);
      end if;
    end if;
  exception when undefined_column then
    perform fence._refuse_broken(tg_relid, sqlerrm);
  end;$source$,
    v_covered,
    fence._name_expression(p_guard, p_table, 'old.%2$s'), fence._name_expression(p_guard, p_table, 'new.%2$s'),
    fence._name_query(p_guard, p_table, v_both),
    fence._name_expression(p_guard, p_table, 'r.%2$s'), fence._name_query(p_guard, p_table, 'fence_rows r'));
end
$$;
