-- The expression that renders a row's resource; null where its key is. p_column is a format for what a key column is called in it, of its ordinal and
-- of the column as rows are told apart by it: 'new.%2$s'.
create function fence._name_expression(p_guard fence._guard, p_table oid, p_column text) returns text
language sql
stable
as $$
  select pg_catalog.format('(%s) collate "C"', pg_catalog.string_agg(
    case
      when p.kind = 'text' then pg_catalog.quote_literal(p.value)
      when p.value = '@schema' then pg_catalog.quote_literal(fence._encode((p_guard).template_schema))
      when p.value = '@table' then pg_catalog.quote_literal(fence._encode((p_guard).template_table))
      else pg_catalog.format(k.rendered, pg_catalog.format(p_column, k.ordinal, k.raw))
    end, ' || ' order by p.ordinal))
  from fence._template_parts((p_guard).template) p
  left join fence._key_columns(p_table, (p_guard).template) k on k.ordinal = p.ordinal
$$;
