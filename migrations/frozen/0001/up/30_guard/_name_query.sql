-- The query that renders the distinct resources of a set of rows, in name order: select <name> from (select distinct <keys> from <rows>) d.
-- p_rows is trusted SQL: a from item with alias r. Distinct before rendering: a bulk statement renders each resource once.
create function fence._name_query(
  p_guard fence._guard,
  p_table oid,
  p_rows text
) returns text
language sql
stable
as $$
  select pg_catalog.format('select (%s) collate "C" as name from (select distinct %s from %s) d order by 1 nulls first',
    pg_catalog.string_agg(
      case
        when p.kind = 'text' then pg_catalog.quote_literal(p.value)
        when p.value = '@schema' then pg_catalog.quote_literal(fence._encode((p_guard).template_schema))
        when p.value = '@table' then pg_catalog.quote_literal(fence._encode((p_guard).template_table))
        else k.rendered
      end, ' || ' order by p.ordinal),
    pg_catalog.string_agg(pg_catalog.format('r.%s as k%s', k.raw, k.ordinal), ', ' order by k.ordinal)
      filter (where k.ordinal is not null),
    p_rows)
  from fence._template_parts((p_guard).template) p
  left join fence._key_columns(p_table, (p_guard).template) k on k.ordinal = p.ordinal
$$;
