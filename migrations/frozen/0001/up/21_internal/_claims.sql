-- The claims of this transaction, or null: what it has presented and, after that, those of the connection's start-up setting
-- fence.claim, <resource in hex>:<token>:<secret>[:<sequence>] joined by commas, brought into the same form. Any role may SET
-- either: they are taken apart as text, and nothing in them is believed before fence._check_lease has compared it with the locked lease.
create function fence._claims() returns text
language sql
stable
as $$
  select case
    when coalesce(pg_catalog.current_setting('fence.claim', true), '') = '' then fence._claim_lines()
    else pg_catalog.concat(fence._claim_lines(), E'\n', pg_catalog.replace(
      pg_catalog.translate(pg_catalog.current_setting('fence.claim', true), ':,', E' \n'), E'\n', E' -\n'), E' -\n')
  end
$$;
