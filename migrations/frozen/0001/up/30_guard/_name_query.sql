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
  select pg_catalog.format('select %s as name from (select distinct %s from %s) d order by 1 nulls first',
    fence._name_expression(p_guard, p_table, 'd.k%1$s'), pg_catalog.string_agg(pg_catalog.format('r.%s as k%s', k.raw, k.ordinal), ', ' order by k.ordinal),
    p_rows)
  from fence._key_columns(p_table, (p_guard).template) k
$$;
