-- The row triggers that a table with a guard's statement triggers lacks, where it was detached from that guard's tree: the root had them, and
-- PostgreSQL takes its clones away. '' is none; null: the guard does not fit the table. The checks of single rows do not count, statements are checked there; nor does 0_fence_move, whose work
-- the update's check does in a tree.
create function fence._audit_lost_row_triggers(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
begin
  perform fence._check_template(p_guard, p_table);
  perform fence._check_token_column(p_guard, p_table);
  return (
    select coalesce(pg_catalog.string_agg(w.name, ', ' order by w.name), '')
    from fence._guard_triggers(p_guard, p_table) w
    where w.level = 'row' and w.name <> '0_fence_move' and not starts_with(w.name, '0_fence_row')
      and not exists (
        select from pg_catalog.pg_trigger t
        where t.tgrelid = p_table and t.tgname = w.name and t.tgfoid = fence._guard_function((p_guard).id)));
exception when sqlstate 'LF010' then
  return null;
end
$$;
