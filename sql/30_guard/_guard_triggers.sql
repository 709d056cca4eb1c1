-- The triggers that a guard has on one table of its tree, in the order they are made; p_table is the guarded table or one under it.
-- Names begin with 0 to fire before other triggers of their kind, or with ~ to fire after them.
-- 0_fence_claim lets an unaware job fail before its first row. It has no WHEN clause: the executor reads one anew for every statement, which costs
-- more than the call. Those of rows are evaluated by the writer, without a call:
--   0_fence_move    true only where the key changed; it keeps the key's columns from being retyped or dropped
-- Where inserts are allowed, no trigger of an insert is there but 0_fence_arrive.
-- Table scope needs one check before the statement; where writes are counted, a look after it whether it touched a row.
-- Row scope: both images set-wise, on every level: a row that moves to another partition fires no update row trigger, and a parent's row triggers
-- do not see its children's rows, of which there may be some tomorrow. (0_fence_move keeps the key's columns from being retyped.) The row triggers of a partitioned table are what PostgreSQL clones to a partition made later:
-- it refuses before anybody has armed it. Every partitioned table has its own, with its level in the name, and they are switched off on
-- all that lies under it and has statement triggers (fence._arm_statements). Not the root's alone: pg_dump orders a switched-off clone
-- after the trigger that it was cloned from only where the two are one level apart.
--   ~~0_fence_leave  stays on everywhere: a MERGE that moves a row to another partition puts it into no transition table of
--                    its update, and fires only this before the row leaves; true where a column changed that decides the
--                    partition or the resource. Last by name, to see what other triggers made of the row.
--   0_fence_arrive   stays on everywhere too: what the triggers of its new partition made of such a row. Called only in a transaction
--                    in which a row may have left one. But where somebody has a row trigger before insert, for every new row that is checked:
--                    whatever the writer has a say in between leaving and arriving (a policy, a check) could take that
--                    mark back. Without such a trigger a row arrives as it left; where inserts are allowed, so is what arrives;
--                    and in table scope every row has one resource
--   0_fence_stopped  only where the database has a language in which a function can stop a statement at a number of rows: what is stopped so has written them, and no
--                    trigger after it fires. Stays on everywhere; looks at the rows of what functions run, and at nothing else
create function fence._guard_triggers(p_guard fence._guard, p_table oid)
returns table (name text, timing text, events text, level text, old_rows boolean, new_rows boolean, condition text, definition text)
language sql
stable
as $$
  with place as (
    select case (p_guard).inserts when 'allow' then '' else 'insert or ' end as inserts,
      c.relkind = 'p' and not c.relispartition as partitioned_root,
      case when c.relkind = 'p' then
        coalesce(nullif((select pg_catalog.count(*) - 1 from pg_catalog.pg_partition_ancestors(p_table)), 0)::text, '') end as level,
      c.relkind = 'p' or exists (select from pg_catalog.pg_inherits i where p_table in (i.inhrelid, i.inhparent)) as in_tree,
      c.relkind = 'p' or c.relispartition as partitioned,
      (p_guard).scope = 'row' and (p_guard).inserts <> 'allow' and c.relkind = 'p' and not c.relispartition and exists (
        select from fence._members(p_table) m
        join pg_catalog.pg_trigger t on t.tgrelid = m.relid and t.tgparentid = 0 and t.tgtype::integer & 7 = 7
        join pg_catalog.pg_proc f on f.oid = t.tgfoid
        where f.pronamespace <> 'fence'::regnamespace) as changed_on_arrival,
      (select pg_catalog.string_agg(k.moved, ' or ' order by k.ordinal)
       from fence._key_columns(p_table, (p_guard).template) k) as moved,
      (select pg_catalog.string_agg(fence._changed(p_table, a.attnum), ' or ' order by a.attnum)
       from pg_catalog.pg_attribute a
       where a.attrelid = p_table and a.attname in (
         select k.attname from fence._key_columns(p_table, (p_guard).template) k
         union all
         select q.attname from fence._partition_columns(p_table) q)) as left_behind
    from pg_catalog.pg_class c where c.oid = p_table
  ), wanted (name, timing, events, level, old_rows, new_rows, condition) as (
    select v.* from place p, lateral (values
      ('0_fence_guard', 'before', p.inserts || 'update or delete or truncate', 'statement', false, false, null::text)) v
    where (p_guard).scope = 'table'
    union all
    select v.* from place p, lateral (values
      ('0_fence_insert', 'after', 'insert', 'statement', false, true, null),
      ('0_fence_update', 'after', 'update', 'statement', false, true, null),
      ('0_fence_delete', 'after', 'delete', 'statement', true, false, null)) v
    where (p_guard).scope = 'table' and (p_guard).writes <> 'many' and (v.column3 <> 'insert' or p.inserts <> '')
    union all
    select v.* from place p, lateral (values
      ('0_fence_claim', 'before', p.inserts || 'update or delete or truncate', 'statement', false, false, null),
      ('0_fence_insert', 'after', 'insert', 'statement', false, true, null),
      ('0_fence_update', 'after', 'update', 'statement', true, true, null),
      ('0_fence_delete', 'after', 'delete', 'statement', true, false, null)) v
    where (p_guard).scope = 'row' and (v.column3 <> 'insert' or p.inserts <> '')
    union all
    select '0_fence_move', 'after', 'update', 'row', false, false, p.moved from place p
    where (p_guard).scope = 'row' and not p.partitioned
    union all
    select v.* from place p, lateral (values
      ('0_fence_row' || p.level, 'after', p.inserts || 'delete', 'row', false, false, null),
      ('0_fence_row_update' || p.level, 'after', 'update', 'row', false, false, '(' || p.moved || ') is not null')) v
    where p.level is not null
    union all
    select v.* from place p, lateral (values
      ('0_fence_arrive', 'after', 'insert', 'row', false, false,
        case when not p.changed_on_arrival then 'coalesce(pg_catalog.current_setting(''fence.moving'', true), '''') <> ''''' end),
      ('~~0_fence_leave', 'before', 'update', 'row', false, false, p.left_behind)) v
    where p.partitioned_root
    union all
    select v.name, v.timing, v.events, 'row', false, false, null
    from place p, lateral (values
      ('0_fence_stopped', 'after', p.inserts || 'update or delete',
        ((p_guard).scope = 'row' or (p_guard).writes <> 'many') and fence._limiting_language() is not null),
      ('~0_fence_stamp', 'before', 'insert or update', (p_guard).token_column is not null),
      ('~0_fence_turn', 'before', 'insert', (p_guard).scope = 'row' and (p_guard).writes <> 'many' and p.inserts <> '')) v (name, timing, events, wanted)
    where v.wanted and (not p.in_tree or p.partitioned_root
      or exists (select from pg_catalog.pg_class c where c.oid = p_table and not c.relispartition and c.relkind = 'r'))
  )
  select w.name, w.timing, w.events, w.level, w.old_rows, w.new_rows, w.condition,
    pg_catalog.concat_ws(' ', w.timing, w.events, 'on', p_table::regclass,
      case when w.old_rows or w.new_rows then 'referencing' end,
      case when w.old_rows and w.new_rows then 'old table as fence_old_rows' when w.old_rows then 'old table as fence_rows' end,
      case when w.new_rows then 'new table as fence_rows' end,
      'for each', w.level, 'when (' || w.condition || ')',
      pg_catalog.format('execute function fence.%I()', '_guard_' || (p_guard).id))
  from wanted w
$$;
