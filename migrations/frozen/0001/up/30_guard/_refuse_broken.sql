-- LF013: a column of the guard's key, or its token column, was renamed, dropped or retyped; or what is known of its covering resource is lost.
create function fence._refuse_broken(p_table oid, p_problem text) returns void
language plpgsql
volatile
as $$
declare
  v_label text := p_table::regclass;
  v_guard fence._guard := fence._guard_of(p_table);
  v_root regclass := fence._tree_root(p_table);
  v_detail text := pg_catalog.format('Its key cannot be read: %s.', p_problem);
  v_message text := pg_catalog.format('the guard on %s is broken', v_label);
  v_hint text := pg_catalog.format('Protect the table again with a template over its present columns: select fence.protect(%L, ''...'');',
    v_root);
begin
  if fence._passes(p_table, 'LF013', null) then
    return;
  end if;
  if v_guard.token_column is not null and not exists (
    select from pg_catalog.pg_attribute a
    where a.attrelid = p_table and a.attname = v_guard.token_column and a.atttypid = 'int8'::regtype and not a.attisdropped)
  then
    v_detail := pg_catalog.format('It has no bigint column %I to stamp.', v_guard.token_column);
    v_hint := pg_catalog.format('Name another token column, or none: select fence.protect(%L, %L, p_token_column => %L);',
      v_root, v_guard.template, '');
  end if;
  if v_guard.covering is not null and not exists (select from fence._covering c where c.resource = v_guard.covering) then
    v_detail := pg_catalog.format('Nothing is known of its covering resource %L.', v_guard.covering);
    v_hint := pg_catalog.format('Protect the table again as it was: %s', fence._protect_call(v_guard, v_root));
  end if;
  perform fence._raise('LF013', v_message, v_detail, v_hint, p_table);
end
$$;
