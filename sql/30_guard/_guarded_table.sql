-- The table that a guard has to be on: where its triggers are; else, where there are none, the table of the name that it was made for, unless that has a
-- guard of its own by now. Null where there is no such table.
create function fence._guarded_table(p_guard fence._guard) returns oid
language plpgsql
stable
as $$
declare
  v_table oid := fence._table_of(p_guard);
begin
  if v_table is null then
    v_table := fence._named_table(p_guard);
    if (fence._guard_of(v_table)).id is not null then
      v_table := null;
    end if;
  end if;
  return v_table;
end
$$;
