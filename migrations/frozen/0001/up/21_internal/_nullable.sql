-- Can a column of a table be null, in it or in a table under it? A domain lets nulls in by ways of its own, and a constraint that is not validated has not looked.
create function fence._nullable(p_table oid, p_column name) returns boolean
language sql
stable
as $$
  select exists (
    select from fence._members(p_table) m
    join pg_catalog.pg_attribute a on a.attrelid = m.relid and a.attname = p_column
    join pg_catalog.pg_type t on t.oid = a.atttypid
    where not a.attnotnull or t.typtype = 'd'
      or exists (
        select from pg_catalog.pg_constraint c
        where c.conrelid = m.relid and c.contype = 'n' and not c.convalidated and a.attnum = any (c.conkey)))
$$;
