-- The top of the partition or inheritance tree that a table is part of; the table itself where it is in none.
create function fence._tree_root(p_table oid) returns oid
language sql
stable
as $$
  with recursive up (relid, depth) as (
    select p_table, 0
    union all
    select i.inhparent, u.depth + 1 from up u join pg_catalog.pg_inherits i on i.inhrelid = u.relid and i.inhseqno = 1
  )
  select u.relid from up u order by u.depth desc limit 1
$$;
