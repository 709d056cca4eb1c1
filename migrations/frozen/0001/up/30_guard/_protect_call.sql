-- The statement that protects a table as a guard's registry row says.
create function fence._protect_call(p_guard fence._guard, p_table oid) returns text
language sql
stable
as $$
  select pg_catalog.format('select fence.protect(%s);', pg_catalog.concat_ws(', ',
    pg_catalog.quote_literal(p_table::regclass),
    pg_catalog.quote_literal((p_guard).template),
    case when (p_guard).mode <> 'enforce' then pg_catalog.format('p_mode => %L', (p_guard).mode) end,
    case when (p_guard).expiry <> 'reject' then pg_catalog.format('p_expiry => %L', (p_guard).expiry) end,
    case when (p_guard).writes <> 'many' then pg_catalog.format('p_writes => %L', (p_guard).writes) end,
    case when (p_guard).inserts <> 'check' then pg_catalog.format('p_inserts => %L', (p_guard).inserts) end,
    case when (p_guard).covering is not null then pg_catalog.format('p_covering => %L', (p_guard).covering) end,
    case when (p_guard).token_column is not null then pg_catalog.format('p_token_column => %L', (p_guard).token_column) end,
    case when (p_guard).uncatchable then 'p_uncatchable => true' end))
$$;
