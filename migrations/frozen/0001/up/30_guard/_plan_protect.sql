-- What fence.protect would make of a table, found without a lock and without a change. The template may hold {@key}: the columns of the primary
-- key, '{a}:{b}'. Returns the template with that written out, the guard that is there (null: none), and what stands in the way with its remedy
-- (null: nothing, but for null keys, which only fence.protect looks for).
create function fence._plan_protect(p_table regclass, p_template text, out resource text, out guard jsonb, out problem text, out remedy text)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_guard fence._guard := fence._guard_of(p_table);
  v_key text;
begin
  if v_guard.id is not null then
    guard := to_jsonb(v_guard) || jsonb_build_object('armed', (fence._guard_state(v_guard.id)).armed);
  else
    select n.nspname, c.relname into v_guard.template_schema, v_guard.template_table
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = p_table;
  end if;
  select string_agg('{' || a.attname || '}', ':' order by k.position) into v_key
  from pg_index i
  cross join lateral unnest(i.indkey) with ordinality k (attnum, position)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
  where i.indrelid = p_table and i.indisprimary and k.position <= i.indnkeyatts;

  resource := p_template;
  if exists (select from fence._template_parts(p_template) t where t.kind = 'name' and t.value = '@key') then
    if v_key is null then
      perform fence._raise('LF010', format('%s has no primary key', p_table), 'There is nothing to write for {@key}.',
        'Give it a template of its own, or leave it out.', p_table);
    end if;
    select string_agg(
      case
        when t.kind = 'text' then replace(replace(t.value, '{', '{{'), '}', '}}')
        when t.value = '@key' then v_key
        else '{' || t.value || '}'
      end, '' order by t.ordinal) into resource
    from fence._template_parts(p_template) t;
  end if;
  v_guard.template := resource;
  perform fence._check_table(p_table);
  perform fence._check_owner(p_table);
  perform fence._check_template(v_guard, p_table);
exception when sqlstate 'LF010' or insufficient_privilege then
  get stacked diagnostics problem = message_text, v_key = pg_exception_detail, remedy = pg_exception_hint;
  problem := problem || '. ' || v_key;
end
$$;
