-- Forgets a guard: its registry row and its generated function. Fails while a trigger still calls the function.
create function fence._remove_guard(p_id integer) returns void
language plpgsql
volatile
as $$
begin
  delete from fence._guard g where g.id = p_id;
  execute pg_catalog.format('drop function if exists fence.%I()', '_guard_' || p_id);
end
$$;
