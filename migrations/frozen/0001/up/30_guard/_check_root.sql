-- LF010 where a table is a part of a tree, whose guard is its top's to change. p_function, p_more: the call that is refused, for the hint, and its further arguments.
create function fence._check_root(p_table regclass, p_function text, p_more text default '') returns void
language plpgsql
stable
as $$
begin
  if fence._tree_root(p_table) <> p_table then
    perform fence._raise('LF010', pg_catalog.format('%s has no guard of its own', p_table),
      pg_catalog.format('It is guarded as a part of %s.', fence._tree_root(p_table)::regclass),
      pg_catalog.format('Name that table: select fence.%s(%L%s);', p_function, fence._tree_root(p_table)::regclass, p_more), p_table);
  end if;
end
$$;
