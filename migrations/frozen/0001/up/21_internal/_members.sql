-- A table and everything under it, partitions or inheritance children, top-down. Planned by itself and for few rows: what is joined to it is looked up
-- by index, however many triggers the database has.
create function fence._members(p_table oid) returns table (relid oid, depth integer)
language plpgsql
stable
rows 2
as $$
#variable_conflict use_column
begin
  return query
  with recursive down (relid, depth) as (
    select p_table, 0
    union
    select i.inhrelid, d.depth + 1 from down d join pg_catalog.pg_inherits i on i.inhparent = d.relid
  )
  select d.relid, pg_catalog.max(d.depth) from down d group by d.relid order by 2, 1;
end
$$;
