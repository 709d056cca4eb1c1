-- LF010 unless a guard's covering resource can cover its rows: a row scope, and a name that is no row's, here or in another table that has
-- a covering resource, nor covers rows that cover others.
create function fence._check_covering_name(p_guard fence._guard, p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_other fence._guard;
begin
  if p_guard.covering is null then
    return;
  end if;
  perform fence._check_resource(p_guard.covering);
  if p_guard.scope = 'table' then
    perform fence._raise('LF010', pg_catalog.format('%s needs no covering resource', p_table::regclass),
      'All of its rows belong to one resource.', pg_catalog.format('Hold that one: select * from fence.acquire(%L);', fence._table_resource(p_guard)),
      p_table);
  elsif p_guard.covering ~ p_guard.pattern then
    perform fence._raise('LF010', pg_catalog.format('%L cannot cover the rows of %s', p_guard.covering, p_table::regclass),
      pg_catalog.format('It could be the name of a single row: the template is %L.', p_guard.template),
      'Choose a name that the template cannot render.', p_table);
  end if;
  select g.* into v_other from fence._guard g
  where g.id <> p_guard.id and (p_guard.covering ~ g.pattern or g.covering ~ p_guard.pattern)
  limit 1;
  if found then
    perform fence._raise('LF010', pg_catalog.format('%L cannot cover the rows of %s', p_guard.covering, p_table::regclass),
      pg_catalog.format('It would meet %L, which covers %L of %I.%I: nothing covers what covers others.', v_other.covering, v_other.template,
        v_other.schema_name, v_other.table_name), 'Choose another name.', p_table);
  end if;
end
$$;
