-- What is wrong with the triggers of a guard, in words: one row for each table and kind of fault.
create function fence._audit_triggers(p_guard fence._guard, p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
declare
  v_function oid := fence._guard_function(p_guard.id);
  v_remedy text := pg_catalog.format('select fence.repair(%L);', p_table::regclass);
  v_open oid[] := array(select r.relid from fence._row_guard_faults(p_guard, p_table) r (relid));
  v_above_open oid[] := array(select a.relid from unnest(v_open) o (relid) cross join pg_catalog.pg_partition_ancestors(o.relid) a);
begin
  return query
    with faults as (
      select f.relid, f.name, f.fault, t.tgenabled,
        f.relid <> p_table and not exists (
          select from pg_catalog.pg_trigger o where o.tgrelid = f.relid and o.tgfoid = v_function and o.tgparentid = 0) as is_new,
        c.relispartition
      from fence._trigger_faults(p_guard, p_table) f
      join pg_catalog.pg_class c on c.oid = f.relid
      left join pg_catalog.pg_trigger t on t.tgrelid = f.relid and t.tgname = f.name
      where f.fault <> 'changes rows behind the guard'  -- see fence._audit_surroundings
    ), coded as (
      select f.relid, f.name,
        case
          when f.fault = 'is not switched off' then case when not f.is_new then 'row-guard-on' end
          when f.is_new and not f.relispartition then 'child-unguarded'
          when f.is_new and f.fault = 'unarmed' and f.relid <> all (v_above_open) then 'partition-unarmed'
          when f.fault in ('unarmed', 'missing') or f.tgenabled is null then 'guard-missing'
          when f.fault = 'calls another function' then 'guard-replaced'
          when f.fault = 'is defined differently' then 'guard-altered'
          when f.tgenabled = 'D' then 'guard-disabled'
          else 'guard-not-always'
        end as code
      from faults f
    )
    select case when f.code in ('partition-unarmed', 'row-guard-on') then 'warning' else 'error' end, f.code, f.relid::regclass::text,
      pg_catalog.format(case f.code
        when 'child-unguarded' then 'A child made after the table was protected: nobody who writes to it directly is checked. It lacks %s.'
        when 'partition-unarmed' then 'A partition made after the table was protected: its rows are checked one by one, but a direct '
          || 'TRUNCATE of it is not. It lacks %s.'
        when 'row-guard-on' then 'A partition that was attached again: its rows are checked twice, which takes time. On are %s.'
        when 'guard-missing' then 'Triggers of the guard are missing: %s.'
        when 'guard-replaced' then 'Triggers under the guard''s names call other functions: %s.'
        when 'guard-altered' then 'Triggers of the guard are defined differently: %s.'
        when 'guard-disabled' then 'Triggers of the guard are disabled: %s.'
        else 'Triggers of the guard are not ENABLE ALWAYS: %s. Sessions in replica role pass them.'
      end, pg_catalog.string_agg(f.name, ', ' order by f.name)),
      v_remedy
    from coded f
    where f.code is not null
    group by f.relid, f.code;

  return query
    select 'error', 'row-guard-off', o.relid::regclass::text,
      'Its row triggers are off, and a level above it, or it itself, lacks statement triggers: rows that come in there are not checked.',
      v_remedy
    from unnest(v_open) o (relid);

  return query
    with members as materialized (
      select m.relid from fence._members(p_table) m
    ), wanted as materialized (
      select m.relid, w.name from members m cross join lateral fence._guard_triggers(p_guard, m.relid) w
    )
    select 'warning', 'guard-extra', t.tgrelid::regclass::text,
      pg_catalog.format('Further triggers call the guard''s function, which may drop rows there without a word: %s.',
        pg_catalog.string_agg(t.tgname, ', ' order by t.tgname)),
      v_remedy
    from pg_catalog.pg_trigger t
    where t.tgfoid = v_function and t.tgparentid = 0 and t.tgrelid in (select m.relid from members m)
      and not exists (select from wanted w where w.relid = t.tgrelid and w.name = t.tgname)
    group by t.tgrelid;
end
$$;
