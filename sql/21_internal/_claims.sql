-- The claims of this transaction, as fence.present wrote them into the local setting fence.claims:
--   <transaction id> newline <resource in hex> <token> <secret> <sequence or -> newline ...
-- Nothing where the setting belongs to another transaction (left over, copied, made up): any role may SET it, so every
-- field is only text here, and the guard believes none of it before it has compared it with the locked lease row.
create function fence._claims()
returns table (resource_hex text, token text, secret text, sequence text)
language sql
stable
as $$
  select pg_catalog.split_part(i.item, ' ', 1), pg_catalog.split_part(i.item, ' ', 2),
    pg_catalog.split_part(i.item, ' ', 3), pg_catalog.split_part(i.item, ' ', 4)
  from pg_catalog.string_to_table(pg_catalog.current_setting('fence.claims', true), E'\n') i (item)
  where pg_catalog.split_part(pg_catalog.current_setting('fence.claims', true), E'\n', 1)
      = pg_catalog.pg_current_xact_id_if_assigned()::text
    and pg_catalog.strpos(i.item, ' ') > 0
$$;
