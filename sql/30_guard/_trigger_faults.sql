-- What is wrong with the triggers of a guard on a table and everything under it, one row for each fault; none: it is armed. Compares
-- what should be there (fence._guard_triggers) with the catalog, part by part. 'unarmed' is a table of the tree that has no statement trigger
-- at all: a partition or a child made after protect.
create function fence._trigger_faults(p_guard fence._guard, p_table oid) returns table (relid oid, name text, fault text)
language sql
stable
as $$
  with wanted as (
    select m.relid, m.depth, w.*,
      case w.level when 'row' then 1 else 0 end | case w.timing when 'before' then 2 else 0 end
        | case when w.events like '%insert%' then 4 else 0 end | case when w.events like '%delete%' then 8 else 0 end
        | case when w.events like '%update%' then 16 else 0 end | case when w.events like '%truncate%' then 32 else 0 end as type
    from fence._members(p_table) m cross join lateral fence._guard_triggers(p_guard, m.relid) w
  ), judged as (
    select w.relid, w.name, t.oid is not null as found,
      case
        when t.oid is null then 'missing'
        when t.tgfoid is distinct from fence._guard_function(p_guard.id) then 'calls another function'
        when t.tgtype <> w.type or t.tgnargs <> 0 or t.tgattr <> '' or t.tgdeferrable
          or t.tgoldtable is distinct from (case when w.old_rows and w.new_rows then 'fence_old_rows' when w.old_rows then 'fence_rows' end)
          or t.tgnewtable is distinct from (case when w.new_rows then 'fence_rows' end)
          or fence._plain_condition(w.condition) is distinct from fence._plain_condition(
            pg_catalog.substring(pg_catalog.pg_get_triggerdef(t.oid), ' WHEN (.*) EXECUTE FUNCTION '))
          then 'is defined differently'
        when t.tgenabled <> 'A' then 'is not ENABLE ALWAYS'
      end as fault
    from wanted w
    left join pg_catalog.pg_trigger t on t.tgrelid = w.relid and t.tgname = w.name
  )
  select j.relid, j.name, case when j.some_found then j.fault else 'unarmed' end
  from (select n.*, pg_catalog.bool_or(n.found) over (partition by n.relid) as some_found from judged n) j
  where j.fault is not null
  union all
  -- What PostgreSQL cloned to the partitions: on, but for the checks of single rows where statements are checked.
  select m.relid, w.name, case when t.tgenabled = 'A' then 'is not switched off' else 'is not ENABLE ALWAYS' end
  from fence._members(p_table) u
  join pg_catalog.pg_class c on c.oid = u.relid and c.relkind = 'p'
  cross join lateral fence._guard_triggers(p_guard, u.relid) w
  join pg_catalog.pg_trigger o on o.tgrelid = u.relid and o.tgname = w.name
  cross join lateral fence._members(u.relid) m
  left join pg_catalog.pg_trigger t on t.tgrelid = m.relid and t.tgname = w.name and t.tgparentid <> 0
  where w.level = 'row' and m.depth > 0
    and t.tgenabled is distinct from (case when starts_with(w.name, '0_fence_row') then 'D' else 'A' end)
  union all
  select l.relid, l.name, 'changes rows behind the guard' from fence._late_triggers(p_table) l
$$;
