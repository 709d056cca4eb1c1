-- The columns that decide, anywhere in a tree, which partition a row belongs to, by name; those within expressions too: columns that
-- depend on their own table.
create function fence._partition_columns(p_table oid) returns table (attname name)
language sql
stable
as $$
  select distinct a.attname
  from fence._members(p_table) m
  join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_class'::regclass and d.objid = m.relid
    and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = m.relid and d.refobjsubid = 0 and d.deptype = 'i'
  join pg_catalog.pg_attribute a on a.attrelid = d.objid and a.attnum = d.objsubid
$$;
