-- The registry row of the guard on a table, or null: told by the triggers on it (on the top of its tree, where it is in one), which
-- survive renames and restores. Where triggers of a second tree call the same function (its owner may make such), the guard
-- is that of the table whose name it was made for, or, where that has another name by now, of the oldest.
create function fence._guard_of(p_table oid) returns fence._guard
language sql
stable
as $$
  select g
  from (select fence._tree_root(p_table) as relid) r
  join pg_catalog.pg_class c on c.oid = r.relid
  join pg_catalog.pg_namespace d on d.oid = c.relnamespace
  join pg_catalog.pg_trigger t on t.tgrelid = r.relid
  join pg_catalog.pg_proc p on p.oid = t.tgfoid
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  join fence._guard g on g.id = fence._guard_id(p.proname)
  where n.nspname = 'fence' and not t.tgisinternal
    and ((g.schema_name, g.table_name) = (d.nspname::text, c.relname::text)
      or not exists (
        select from pg_catalog.pg_trigger o cross join lateral fence._tree_root(o.tgrelid) other (relid)
        where o.tgfoid = t.tgfoid and other.relid <> r.relid
          and (other.relid < r.relid
            or other.relid = fence._named_table(g))))
  limit 1
$$;
