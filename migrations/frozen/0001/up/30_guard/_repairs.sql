-- The protected tables that fence.repair has work on: those for which the audit's remedy is repair, and those
-- that are locked, so that nobody can tell. All that the session may act as owner of, or the one asked for, also by the name of a part of its tree. Code: LF010 that one is not protected.
create function fence._repairs(p_table regclass) returns setof regclass
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_root oid := fence._tree_root(p_table);
  v_guard fence._guard;
  v_table oid;
  v_known boolean := false;
begin
  for v_guard in select g.* from fence._guard g order by g.schema_name, g.table_name, g.id loop
    v_table := fence._guarded_table(v_guard);
    if v_table is null or (p_table is not null and v_table not in (p_table, v_root)) then
      continue;
    end if;
    v_known := true;
    if exists (
      select from fence._audit_guard(v_guard) a
      where starts_with(a.remedy, 'select fence.repair(') or (a.severity, a.code) = ('warning', 'guard-unreadable'))
      and (p_table is not null
        or pg_has_role(session_user, (select c.relowner from pg_class c where c.oid = v_table), 'member'))
    then
      return next v_table;
    end if;
  end loop;
  if p_table is not null and not v_known then
    perform fence._template_of(p_table);
  end if;
end
$$;
