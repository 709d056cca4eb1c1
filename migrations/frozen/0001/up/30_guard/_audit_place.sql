-- Where a guard sits against where it was put: the table is gone, was made anew, swapped, renamed; or writes reach it through a parent that has no guard.
create function fence._audit_place(p_guard fence._guard, p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
declare
  v_name text := pg_catalog.format('%I.%I', p_guard.schema_name, p_guard.table_name);
  v_named oid := fence._named_table(p_guard);
begin
  if p_table is null then
    return query select 'warning', 'guard-orphaned', v_name,
      pg_catalog.format('The registry has guard %s for a table that is gone, or has another guard now.', p_guard.id),
      pg_catalog.format('select fence._forget_guard(%s); select fence._drop_unused_functions();', p_guard.id);
    return;
  elsif fence._table_of(p_guard) is null then
    return query select 'error', 'table-unguarded', v_name,
      'The registry says that the table is protected, but it has no guard trigger: it was dropped and made again, or restored without its triggers.',
      pg_catalog.format('select fence.repair(%L);', p_table::regclass);
  elsif v_named <> p_table and (fence._guard_of(v_named)).id is null then
    return query select 'error', 'table-swapped', v_name,
      pg_catalog.format('The guard sits on %s, which had this name; the table that has it now is not guarded.', p_table::regclass),
      fence._protect_call(p_guard, v_named);
  elsif v_named is distinct from p_table then
    return query select 'info', 'table-renamed', p_table::regclass::text,
      pg_catalog.format('It was protected as %s. The guard went along; protecting it again writes the new name down.', v_name),
      fence._protect_call(p_guard, p_table);
  end if;

  return query
    select 'error', 'covering-lost', p_table::regclass::text,
      pg_catalog.format('Nothing is known of its covering resource %L: writers of rows are refused with LF013.', p_guard.covering),
      fence._protect_call(p_guard, p_table)
    where p_guard.covering is not null and not exists (select from fence._covering c where c.resource = p_guard.covering);

  return query
    select 'error', 'guard-bypassed', m.relid::regclass::text,
      pg_catalog.format('It is under %s, which this guard is not on: writes through that table pass the guard by.', i.inhparent::regclass),
      case when c.relispartition then pg_catalog.format('alter table %s detach partition %s;', i.inhparent::regclass, m.relid::regclass)
        else pg_catalog.format('alter table %s no inherit %s;', m.relid::regclass, i.inhparent::regclass) end
    from fence._members(p_table) m
    join pg_catalog.pg_class c on c.oid = m.relid
    join pg_catalog.pg_inherits i on i.inhrelid = m.relid
    where i.inhparent not in (select o.relid from fence._members(p_table) o);
end
$$;
