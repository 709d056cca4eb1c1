-- Optional, for superusers: event triggers that arm a new part of a protected tree at once, and that refuse to switch a guard off by
-- hand. A net against accidents, not a wall: a superuser can drop them, and a table's owner with the right to can call fence.unprotect.
-- Apply it once per database; again after an upgrade of pyfence. They read the catalog only and do nothing where schema fence is not installed.
-- To take them away: drop schema fence_events cascade;
create schema if not exists fence_events;
revoke all on schema fence_events from public;
comment on schema fence_events is 'pyfence''s optional event triggers.';

-- Whether fence.protect, unprotect or repair is what runs the command: by the call stack, which they head.
create or replace function fence_events.is_ours(p_context text) returns boolean
language sql
immutable
as $$
  select p_context ~ '\mfence[.](protect|unprotect|repair)[(]'
$$;

-- After DDL on a table. Refuses (42501) to leave a guard's own triggers less than ENABLE ALWAYS; then arms the parts of a protected tree that lack
-- their triggers, where the role may call fence.repair, and says so where it may not. A superuser is only told: nothing of
-- the schema's owner's runs with a superuser's rights.
create or replace function fence_events.table_changed() returns event_trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_context text;
  v_table regclass;
  v_root regclass;
  v_trigger name;
begin
  get diagnostics v_context = pg_context;
  if to_regnamespace('fence') is null or fence_events.is_ours(v_context) then
    return;
  end if;
  for v_table in
    select distinct c.objid::regclass from pg_event_trigger_ddl_commands() c where c.classid = 'pg_class'::regclass and c.object_type = 'table'
  loop
    select t.tgname into v_trigger
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where t.tgrelid = v_table and t.tgparentid = 0 and t.tgenabled <> 'A'
      and p.pronamespace = to_regnamespace('fence') and p.proname ~ '^_guard_[0-9]+$'
    limit 1;
    if found then
      raise exception 'trigger % of % belongs to its guard and stays on', v_trigger, v_table
        using errcode = '42501', schema = 'fence',
          detail = 'A guard is taken off as a whole, or not at all.',
          hint = format('select fence.unprotect(%1$L); or, if it was off before: select fence.repair(%1$L);', v_table::text);
    end if;

    with recursive up (relid, depth) as (
      select v_table::oid, 0
      union all
      select i.inhparent, u.depth + 1 from up u join pg_inherits i on i.inhrelid = u.relid and i.inhseqno = 1
    )
    select u.relid into v_root from up u order by u.depth desc limit 1;
    if v_root <> v_table
      and exists (
        select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = v_root and p.pronamespace = to_regnamespace('fence') and p.proname ~ '^_guard_[0-9]+$')
      and not exists (
        select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = v_table and t.tgparentid = 0 and p.pronamespace = to_regnamespace('fence'))
    then
      begin
        if (select r.rolsuper from pg_roles r where r.rolname = current_user) then
          raise exception 'a superuser has to call it';
        end if;
        perform fence.repair(v_root);
      exception when others then
        raise warning '% is a new part of % and not fully guarded: %', v_table, v_root, sqlerrm
          using hint = format('As the owner of the table: select fence.repair(%L);', v_root::text);
      end;
    end if;
  end loop;
end
$$;

-- After something was dropped. Refuses (42501) to drop a guard's trigger from a table that stays.
create or replace function fence_events.trigger_dropped() returns event_trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_context text;
  v_dropped record;
begin
  get diagnostics v_context = pg_context;
  if to_regnamespace('fence') is null or fence_events.is_ours(v_context) then
    return;
  end if;
  for v_dropped in
    select d.address_names from pg_event_trigger_dropped_objects() d
    where d.object_type = 'trigger' and d.address_names[3] ~ '^~{0,2}0_fence_'
      and exists (
        select from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = d.address_names[1] and c.relname = d.address_names[2])
  loop
    raise exception 'trigger % of %.% belongs to its guard', v_dropped.address_names[3], v_dropped.address_names[1], v_dropped.address_names[2]
      using errcode = '42501', schema = 'fence',
        detail = 'A guard is taken off as a whole, or not at all.',
        hint = format('select fence.unprotect(%L);', format('%I.%I', v_dropped.address_names[1], v_dropped.address_names[2]));
  end loop;
end
$$;

-- After a trigger was made or replaced. Refuses (42501) one with the name of a guard's that is not a guard's: who has TRIGGER on a table could replace them.
create or replace function fence_events.trigger_made() returns event_trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_trigger record;
begin
  for v_trigger in
    select t.tgname, t.tgrelid::regclass as relation
    from pg_event_trigger_ddl_commands() c
    join pg_trigger t on t.oid = c.objid
    join pg_proc p on p.oid = t.tgfoid
    where c.classid = 'pg_trigger'::regclass and t.tgname ~ '^~{0,2}0_fence_' and p.pronamespace is distinct from to_regnamespace('fence')
  loop
    raise exception 'trigger % of % has the name of a guard''s', v_trigger.tgname, v_trigger.relation
      using errcode = '42501', schema = 'fence',
        detail = 'A guard is taken off as a whole, or not at all.',
        hint = format('Use another name; to take a guard off: select fence.unprotect(%L);', v_trigger.relation::text);
  end loop;
end
$$;

revoke all on all functions in schema fence_events from public;
grant usage on schema fence_events to public;
grant execute on function fence_events.is_ours(text) to public;

drop event trigger if exists fence_table_changed;
create event trigger fence_table_changed on ddl_command_end when tag in ('CREATE TABLE', 'ALTER TABLE')
  execute function fence_events.table_changed();
drop event trigger if exists fence_trigger_made;
create event trigger fence_trigger_made on ddl_command_end when tag in ('CREATE TRIGGER')
  execute function fence_events.trigger_made();
drop event trigger if exists fence_trigger_dropped;
create event trigger fence_trigger_dropped on sql_drop when tag in ('DROP TRIGGER', 'ALTER TABLE', 'DROP FUNCTION')
  execute function fence_events.trigger_dropped();
