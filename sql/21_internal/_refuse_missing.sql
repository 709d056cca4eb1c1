-- LF009: a schema without its data, as a restore with --schema-only leaves it.
create function fence._refuse_missing() returns void
language plpgsql
stable
as $$
begin
  perform fence._raise('LF009', 'the token authority is missing', 'The schema has no data: fence._authority is empty.',
    'Load the data of schema fence from the dump that the schema came from: pg_dump --data-only -n fence');
end
$$;
