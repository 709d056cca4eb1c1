-- The expression that names the resource under which the row NEW is written, within a guard's function: the row's own, or, where the transaction has a
-- claim on it (v_covered), the covering one.
create function fence._written_under(p_guard fence._guard, p_table oid) returns text
language plpgsql
stable
as $$
declare
  v_name text := case p_guard.scope when 'table' then pg_catalog.quote_literal(fence._table_resource(p_guard))
    else fence._name_expression(p_guard, p_table, 'new.%2$s') end;
begin
  if p_guard.covering is null then
    return pg_catalog.format('(%s)', v_name);
  end if;
  return pg_catalog.format('case when v_covered then %L else (%s) end', p_guard.covering, v_name);
end
$$;
