-- The top of the partition or inheritance tree that a table is part of, by way of the first parent of each; the table itself where it is in none.
create function fence._tree_root(p_table oid) returns oid
language sql
stable
as $$
  with recursive up (relid, depth) as (
    select p_table, 0
    union all
    select i.inhparent, u.depth + 1 from up u
    cross join lateral (select p.inhparent from pg_catalog.pg_inherits p where p.inhrelid = u.relid order by p.inhseqno limit 1) i
  )
  select u.relid from up u order by u.depth desc limit 1
$$;
