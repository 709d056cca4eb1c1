-- The triggers of a guard: name and definition (what follows "trigger <name>"), in the order they are made. The names begin
-- with 0 to fire before other triggers of their kind. The WHEN clauses are evaluated by the writer, without a call:
--   0_fence_claim  true only where the transaction has no claim at all: an unaware job fails before its first row
--   0_fence_move   true only where the key changed; it also keeps the key's columns from being retyped or dropped
create function fence._guard_triggers(p_guard fence._guard, p_table oid) returns table (name text, definition text)
language sql
stable
as $$
  with parts as (
    select pg_catalog.format('on %s', p_table::regclass) as on_table,
      pg_catalog.format('execute function fence.%I()', '_guard_' || (p_guard).id) as call,
      (select pg_catalog.string_agg(k.moved, ' or ' order by k.ordinal)
       from fence._key_columns(p_table, (p_guard).template) k) as moved
  )
  select v.name, pg_catalog.format(v.definition, p.on_table, p.call, p.moved)
  from parts p, (values
    ('table', '0_fence_guard', 'before insert or update or delete or truncate %1$s for each statement %2$s'),
    ('row', '0_fence_claim', 'before insert or update or delete %1$s for each statement '
      || 'when (coalesce(pg_catalog.current_setting(''fence.claims'', true), '''') = '''') %2$s'),
    ('row', '0_fence_truncate', 'before truncate %1$s for each statement %2$s'),
    ('row', '0_fence_insert', 'after insert %1$s referencing new table as fence_rows for each statement %2$s'),
    ('row', '0_fence_update', 'after update %1$s referencing new table as fence_rows for each statement %2$s'),
    ('row', '0_fence_delete', 'after delete %1$s referencing old table as fence_rows for each statement %2$s'),
    ('row', '0_fence_move', 'after update %1$s for each row when (%3$s) %2$s')
  ) v (scope, name, definition)
  where v.scope = (p_guard).scope
$$;
