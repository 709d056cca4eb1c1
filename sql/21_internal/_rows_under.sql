-- The leases of single rows under a covering resource.
create function fence._rows_under(p_covering text) returns setof fence._lease
language plpgsql
stable
as $$
declare
  v_guard record;
  v_end text;
begin
  for v_guard in
    select g.pattern, g.prefix from fence._guard g where g.covering = p_covering
  loop
    -- The first text after all that begin with the prefix, where its last character has a plain successor: the key's index is enough then.
    v_end := case when pg_catalog.ascii(pg_catalog.right(v_guard.prefix, 1)) between 1 and 125 then
      pg_catalog.left(v_guard.prefix, -1) || pg_catalog.chr(pg_catalog.ascii(pg_catalog.right(v_guard.prefix, 1)) + 1) end;
    if v_end is null then
      return query select l.* from fence._lease l where l.resource ~ v_guard.pattern;
    else
      return query
        select l.* from fence._lease l
        where l.resource >= v_guard.prefix and l.resource < v_end and l.resource ~ v_guard.pattern;
    end if;
  end loop;
end
$$;
