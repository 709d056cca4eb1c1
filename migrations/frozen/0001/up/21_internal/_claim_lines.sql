-- What this transaction has presented, or null: the local setting fence.claims as fence.present wrote it,
--   <transaction id> { newline <resource in hex> space <token> space <secret> space <sequence or -> } newline
-- newest first. Null where the setting belongs to another transaction (left over, copied, made up).
create function fence._claim_lines() returns text
language sql
stable
as $$
  select case
    when pg_catalog.starts_with(pg_catalog.current_setting('fence.claims', true),
      pg_catalog.pg_current_xact_id_if_assigned()::text || E'\n')
    then pg_catalog.current_setting('fence.claims', true)
  end
$$;
