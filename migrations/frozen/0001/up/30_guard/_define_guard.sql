-- The part of protect that needs the schema owner's rights: checks everything, writes the registry and the generated
-- function, and returns the statements that arm the triggers; those are the table owner's to run, in the same transaction.
-- The caller holds SHARE ROW EXCLUSIVE on the table. A null parameter keeps what is there, or takes the default.
-- Codes: LF010 bad argument, 42501 not the table's owner.
create function fence._define_guard(
  p_table regclass,
  p_resource text,
  p_mode text,
  p_expiry text
) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
  v_event text := case when v_guard.id is null then 'protected' else 'guard changed' end;
begin
  perform fence._check_table(p_table);
  perform fence._check_owner(p_table);
  if exists (
    select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where t.tgrelid = p_table and starts_with(t.tgname, '0_fence_') and p.pronamespace <> 'fence'::regnamespace)
  then
    perform fence._raise('LF010', format('%s has a trigger under a name that guards use', p_table),
      'Names that begin with 0_fence_ are the guard''s.', format('Rename it: alter trigger ... on %s rename to ...;', p_table), p_table);
  end if;
  if v_guard.id is null then
    v_guard := fence._new_guard(p_table);
  end if;

  select n.nspname, c.relname into v_guard.schema_name, v_guard.table_name
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = p_table;
  v_guard.template := p_resource;
  v_guard.mode := coalesce(p_mode, v_guard.mode);
  v_guard.expiry := coalesce(p_expiry, v_guard.expiry);
  perform fence._check_template(v_guard, p_table);
  v_guard.scope := case when exists (select from fence._key_columns(p_table, p_resource)) then 'row' else 'table' end;

  update fence._guard g
  set schema_name = v_guard.schema_name, table_name = v_guard.table_name, template = v_guard.template,
    scope = v_guard.scope, mode = v_guard.mode, expiry = v_guard.expiry
  where g.id = v_guard.id;
  perform fence._create_guard_function(v_guard, p_table);
  perform fence._record(v_event, null, null, null, to_jsonb(v_guard));

  return query
    select format('create or replace trigger %I %s', t.name, t.definition) from fence._guard_triggers(v_guard, p_table) t;
  return query
    select format('alter table %s enable always trigger %I', p_table, t.name) from fence._guard_triggers(v_guard, p_table) t;
  return query
    select format('drop trigger %I on %s', t.tgname, p_table)
    from pg_trigger t
    where t.tgrelid = p_table and t.tgfoid = to_regprocedure(format('fence.%I()', '_guard_' || v_guard.id))
      and not exists (select from fence._guard_triggers(v_guard, p_table) w where w.name = t.tgname);
end
$$;
