-- Forgets every guard that no trigger calls and whose table, going by the name, is there: what unprotect leaves. Harmless
-- whoever calls it: such a guard guards nothing.
create function fence._remove_unused_guards() returns void
language sql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  select fence._remove_guard(g.id)
  from fence._guard g
  where not exists (select from pg_trigger t where t.tgfoid = fence._guard_function(g.id))
$$;
