-- LF013: the database has got a language in which a statement can be stopped, and the guard, on this table or on a child, was not made for that.
create function fence._refuse_unprepared(p_table oid) returns void
language plpgsql
volatile
as $$
begin
  if not fence._passes(p_table, 'LF013', null) then
    perform fence._raise('LF013', pg_catalog.format('the guard on %s does not know the language %I', p_table::regclass, fence._limiting_language()),
      'A function in that language can stop a statement before the guard looks at its rows. It, or a child of the table, came after the guard was made.',
      pg_catalog.format('select fence.repair(%L);', fence._tree_root(p_table)::regclass), p_table);
  end if;
end
$$;
