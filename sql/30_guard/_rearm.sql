-- The part of repair that needs the schema owner's rights: makes the guard's function anew as the registry has it and returns the statements
-- that arm the triggers; those are the table owner's to run, in the same transaction. The caller is fence._change_guard, which holds
-- the table's lock and bounds every wait. Locks: fence._guard ROW EXCLUSIVE, as protect does: fence._renew_guard_functions makes the function anew, too.
-- Codes: LF010 the guard does not fit the table, 42501 not the table's owner.
create function fence._rearm(p_table regclass) returns setof text
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard;
begin
  lock table fence._guard in row exclusive mode;
  v_guard := fence._guard_of(p_table);
  if v_guard.id is null then
    select g.* into v_guard from fence._guard g where fence._guarded_table(g) = p_table order by g.id desc limit 1;
  end if;
  if v_guard.id is null then
    perform fence._template_of(p_table);
  end if;
  perform fence._check_table(p_table);
  perform fence._check_owner(p_table);
  perform fence._check_template(v_guard, p_table);
  perform fence._check_token_column(v_guard, p_table);
  perform fence._create_guard_function(v_guard, p_table);
  perform fence._record('guard repaired', null, null, null, to_jsonb(v_guard));

  return query  -- a constraint trigger cannot be replaced
    select format('drop trigger %I on %s', t.tgname, m.relid::regclass)
    from fence._members(p_table) m
    cross join lateral fence._guard_triggers(v_guard, m.relid) w
    join pg_trigger t on t.tgrelid = m.relid and t.tgname = w.name
    where t.tgconstraint <> 0;
  return query select fence._arm_statements(v_guard, p_table);
end
$$;
