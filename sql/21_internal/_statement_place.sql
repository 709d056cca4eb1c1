-- Where this transaction's row of fence._open_statement is, as far as the setting says; null for none. Anybody may SET it: what is there is looked at.
create function fence._statement_place() returns tid
language sql
stable
as $$
  select case when pg_catalog.current_setting('fence.statement', true) ~ '^[(][0-9]{1,9},[0-9]{1,4}[)]$'
    then pg_catalog.current_setting('fence.statement', true)::tid end
$$;
