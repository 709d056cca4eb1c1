-- LF010 where a second table has the same guard. p_why: what would come of that.
create function fence._check_alone(p_guard fence._guard, p_table regclass, p_why text) returns void
language plpgsql
stable
as $$
declare
  v_other oid := fence._second_table(p_guard.id, p_table);
begin
  if v_other is not null then
    perform fence._raise('LF010', pg_catalog.format('%s has the same guard', v_other::regclass),
      pg_catalog.format('One of the two was a part of the other. %s', p_why),
      pg_catalog.format('Give it a guard of its own first: %s', fence._protect_call(p_guard, v_other)), p_table);
  end if;
end
$$;
