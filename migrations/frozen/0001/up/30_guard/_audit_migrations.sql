-- The schema's migrations are recorded twice: by `pyfence migrate` in fence.alembic_version, and as a branch in the version table of an
-- application's Alembic environment. Reads, with the caller's rights, plain tables that look like such a one; of those that the caller may not
-- read it says nothing. None with row security: a policy would run somebody else's code.
create function fence._audit_migrations()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ours text := fence._recorded_revision();
  v_table regclass;
  v_theirs text;
begin
  if v_ours is null or v_ours like 'fence\_%' then
    return;
  end if;
  for v_table in
    select c.oid::regclass
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'version_num' and a.atttypid in ('text'::regtype, 'varchar'::regtype)
    where c.relkind = 'r' and c.relnamespace <> 'fence'::regnamespace and not c.relrowsecurity and has_table_privilege(c.oid, 'select')
  loop
    execute format('select v.version_num from %s v where v.version_num like %L', v_table, 'fence\_%') into v_theirs;
    if v_theirs is not null then
      return query select 'error', 'migrated-twice', v_table::text,
        format('It records revision %s of schema fence, and fence.alembic_version records %s: the next upgrade fails half way or repeats what is done.',
          v_theirs, v_ours),
        format('delete from %s where version_num = %L;', v_table, v_theirs);
    end if;
  end loop;
end
$$;
