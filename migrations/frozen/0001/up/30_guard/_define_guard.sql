-- The part of protect that needs the schema owner's rights: checks everything, writes the registry and the generated
-- function, and returns the statements that arm the triggers; those are the table owner's to run, in the same transaction.
-- The caller is fence._change_guard, which holds the table's lock and bounds every wait. Locks: see fence._begin_covering. A null parameter keeps what is there, or takes the default.
-- Codes: LF010 bad argument, 42501 not the table's owner.
create function fence._define_guard(
  p_table regclass,
  p_resource text,
  p_mode text,
  p_expiry text,
  p_writes text,
  p_inserts text,
  p_covering text,
  p_token_column name,
  p_uncatchable boolean
) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
  v_before fence._guard;
  v_former integer;
  v_trigger name;
  v_member regclass;
  v_event text := case when v_guard.id is null then 'protected' else 'guard changed' end;
begin
  perform fence._check_table(p_table);
  perform fence._check_owner(p_table);
  select t.tgname, t.tgrelid::regclass into v_trigger, v_member
  from fence._members(p_table) m
  join pg_trigger t on t.tgrelid = m.relid
  join pg_proc p on p.oid = t.tgfoid
  where p.pronamespace <> 'fence'::regnamespace and not t.tgisinternal
    and (starts_with(t.tgname, '0_fence_') or t.oid in (select l.trigger from fence._late_triggers(p_table) l))
  limit 1;
  if found then
    perform fence._raise('LF010', format('%s has a trigger under a name that guards use', v_member),
      'Names that begin with 0_fence_ are the guard''s; in a partitioned table no trigger may change a row after the guard has looked at it: '
        || 'no name of one sorts after ~~0_fence_leave.',
      format('Rename it: alter trigger %I on %s rename to ...;', v_trigger, v_member), p_table);
  end if;
  if v_guard.id is null then
    v_guard := fence._new_guard(p_table);
    perform fence._copy_counts(k.id, v_guard.id)  -- of the guard whose triggers it still has: it was a part of that table
    from (
      select distinct fence._guard_id(p.proname) as id
      from pg_trigger t join pg_proc p on p.oid = t.tgfoid
      where t.tgrelid = p_table and p.pronamespace = 'fence'::regnamespace) k
    where k.id is not null;
  elsif fence._second_table(v_guard.id, p_table) is not null then
    -- Triggers of this guard are on a second table, a detached partition for example: leave that function to it, and take one of our own,
    -- with what was counted so far and the exemptions.
    v_former := v_guard.id;
    v_guard.id := (fence._new_guard(p_table)).id;
    perform fence._copy_counts(v_former, v_guard.id);
    perform from fence._guard g where g.id = v_former for update;  -- nobody gives or ends an exemption meanwhile
    update fence._exemption e set guard = v_guard.id where e.guard = v_former;
  end if;

  select n.nspname, c.relname into v_guard.schema_name, v_guard.table_name
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = p_table;
  v_before := v_guard;
  v_guard.template := p_resource;
  v_guard.mode := coalesce(p_mode, v_guard.mode);
  v_guard.expiry := coalesce(p_expiry, v_guard.expiry);
  v_guard.writes := coalesce(p_writes, v_guard.writes);
  v_guard.inserts := coalesce(p_inserts, v_guard.inserts);
  v_guard.covering := nullif(coalesce(p_covering, v_guard.covering), '');
  v_guard.uncatchable := coalesce(p_uncatchable, v_guard.uncatchable);
  v_guard.token_column := nullif(coalesce(p_token_column, v_guard.token_column), '');
  perform fence._check_template(v_guard, p_table);
  v_guard.scope := case when exists (select from fence._key_columns(p_table, p_resource)) then 'row' else 'table' end;
  select p.pattern, p.prefix into v_guard.pattern, v_guard.prefix
  from fence._template_pattern(v_guard.template, v_guard.template_schema, v_guard.template_table) p
  where v_guard.covering is not null;
  perform fence._check_token_column(v_guard, p_table);
  perform fence._check_covering_name(v_guard, p_table);

  update fence._guard g
  set schema_name = v_guard.schema_name, table_name = v_guard.table_name, template = v_guard.template,
    template_schema = v_guard.template_schema, template_table = v_guard.template_table,
    scope = v_guard.scope, mode = v_guard.mode, expiry = v_guard.expiry, writes = v_guard.writes, inserts = v_guard.inserts,
    covering = v_guard.covering, pattern = v_guard.pattern, prefix = v_guard.prefix, token_column = v_guard.token_column,
    uncatchable = v_guard.uncatchable
  where g.id = v_guard.id;
  if v_guard.covering is not null
    and ((v_guard.covering, v_guard.pattern) is distinct from (v_before.covering, v_before.pattern)
      or not exists (select from fence._covering c where c.resource = v_guard.covering))
  then
    perform fence._begin_covering(v_guard.covering);
    perform fence._check_covering_name(v_guard, p_table);  -- again: nobody changes what covers what from here on
  end if;
  perform fence._create_guard_function(v_guard, p_table);
  -- Guards of tables that have become parts of this one. The query looks at every guard: only where there can be one.
  if exists (select from pg_inherits i where i.inhparent = p_table)
    or exists (
      select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
      where t.tgrelid = p_table and not t.tgisinternal and p.pronamespace = 'fence'::regnamespace
        and p.oid is distinct from fence._guard_function(v_guard.id))
  then
    perform fence._copy_counts(g.id, v_guard.id), fence._forget_guard(g.id)
    from fence._guard g
    where g.id <> v_guard.id
      and exists (select from pg_trigger t where t.tgfoid = fence._guard_function(g.id) and not t.tgisinternal)
      and not exists (
        select from pg_trigger t
        where t.tgfoid = fence._guard_function(g.id) and t.tgrelid not in (select m.relid from fence._members(p_table) m));
  end if;
  perform fence._record(v_event, null, null, null, to_jsonb(v_guard));

  return query select fence._arm_statements(v_guard, p_table);
end
$$;
