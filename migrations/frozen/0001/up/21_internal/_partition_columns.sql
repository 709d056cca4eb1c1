-- The columns that decide, anywhere in a tree, which partition a row belongs to, by name; those within expressions too: columns that
-- depend on their own table. An expression over whole rows is noted for no column: it is all of them.
create function fence._partition_columns(p_table oid) returns table (attname name)
language sql
stable
as $$
  select a.attname
  from fence._members(p_table) m
  join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_class'::regclass and d.objid = m.relid
    and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = m.relid and d.refobjsubid = 0 and d.deptype = 'i'
  join pg_catalog.pg_attribute a on a.attrelid = d.objid and a.attnum = d.objsubid
  union
  select a.attname
  from fence._members(p_table) m
  join pg_catalog.pg_partitioned_table p on p.partrelid = m.relid and p.partexprs::text like '%:varattno 0 %'
  join pg_catalog.pg_attribute a on a.attrelid = m.relid and a.attnum > 0 and not a.attisdropped
$$;
