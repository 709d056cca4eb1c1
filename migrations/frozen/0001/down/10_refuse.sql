-- Nothing is dropped while it is in use: a table whose triggers call pyfence's functions would lose its guard.
do $$
declare
  v_tables text;
  v_count bigint;
  v_unprotect text;
begin
  select string_agg(t.name, ', ' order by t.name), count(*), string_agg(format('select fence.unprotect(%L);', t.name), ' ' order by t.name)
  into v_tables, v_count, v_unprotect
  from (
    select distinct format('%I.%I', n.nspname, c.relname) as name
    from pg_catalog.pg_trigger g
    join pg_catalog.pg_proc f on f.oid = g.tgfoid
    join pg_catalog.pg_class c on c.oid = g.tgrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where f.pronamespace = 'fence'::regnamespace
      and (n.nspname <> 'fence' or f.proname ~ '^_guard_[0-9]+$')
      and g.tgparentid = 0
      and not exists (  -- a part of a tree goes with its root
        select from pg_catalog.pg_inherits i join pg_catalog.pg_trigger u on u.tgrelid = i.inhparent
        where i.inhrelid = c.oid and u.tgfoid = g.tgfoid)
  ) t;
  if v_count > 0 then
    raise exception '% protected: %', case v_count when 1 then '1 table is' else format('%s tables are', v_count) end, v_tables
      using errcode = 'dependent_objects_still_exist',
            schema = 'fence',
            detail = 'Removing pyfence would leave them without a guard, so nothing was removed.',
            hint = format('Take the guards off first: %s', v_unprotect);
  end if;
end
$$;
