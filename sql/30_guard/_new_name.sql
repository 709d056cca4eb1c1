-- The expression that names the resource of the row NEW, within a guard's function.
create function fence._new_name(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
begin
  if p_guard.scope = 'table' then
    return pg_catalog.quote_literal(fence._table_resource(p_guard));
  end if;
  return (
    select fence._name_query(p_guard, p_table, pg_catalog.format('(select %s) r', pg_catalog.string_agg('new.' || k.name, ', ')))
    from (select distinct pg_catalog.quote_ident(k.attname) as name from fence._key_columns(p_table, p_guard.template) k) k);
end
$$;
