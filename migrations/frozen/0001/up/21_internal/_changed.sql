-- The condition, within a row trigger, that an update changed a column. Text is compared byte by byte; an enum by function, not by
-- operator, because its owner may have made a cast to text that makes "=" ambiguous. Types whose equal values may differ (1.0 and
-- 1.00 decide otherwise in a partition key such as scale(n)), or that have no equality: by their text, in which null is as empty as ''; other types: always. A domain is
-- cast to what it is made of, as PostgreSQL prints it.
create function fence._changed(p_table oid, p_attnum smallint) returns text
language sql
stable
as $$
  select case
    when b.typtype = 'e' then
      pg_catalog.format('coalesce(not pg_catalog.enum_eq(old.%1$I%2$s, new.%1$I%2$s), (old.%1$I is null) <> (new.%1$I is null))', a.attname, c.cast)
    when b.typnamespace <> 'pg_catalog'::regnamespace then 'true'
    when b.typname in ('numeric', 'json', 'jsonb', 'bpchar', 'bytea', 'interval') then
      pg_catalog.format('pg_catalog.concat(old.%1$I) <> pg_catalog.concat(new.%1$I) or (old.%1$I is null) <> (new.%1$I is null)', a.attname)
    when b.typname not in ('int2', 'int4', 'int8', 'oid', 'uuid', 'bool', 'text', 'varchar', 'name', 'date', 'time', 'timestamp',
      'timestamptz') then 'true'
    else pg_catalog.format('old.%1$I%2$s is distinct from new.%1$I%2$s', a.attname,
      c.cast || case when b.typcollation <> 0 then ' collate "C"' else '' end)
  end
  from pg_catalog.pg_attribute a
  join pg_catalog.pg_type b on b.oid = fence._base_type(a.atttypid)
  cross join lateral (select case when b.oid <> a.atttypid then '::' || pg_catalog.format_type(b.oid, null) else '' end as cast) c
  where a.attrelid = p_table and a.attnum = p_attnum
$$;
