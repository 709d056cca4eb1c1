-- LF010 where a table of row scope holds rows whose key is null. Reads the table once if the key's columns are nullable. Runs with the caller's rights.
create function fence._refuse_null_keys(p_table regclass) returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_null_keys text := fence._null_keys(p_table);
  v_found boolean;
begin
  if v_null_keys is not null then
    execute format('select exists (select from %s where %s)', p_table, v_null_keys) into v_found;
    if v_found then
      perform fence._raise('LF010', format('%s holds rows whose key is null', p_table),
        'No resource could be named for them, so nobody could write them.',
        format('Give them a key, or delete them, and try again. To see them: select * from %s where %s;', p_table, v_null_keys), p_table);
    end if;
  end if;
end
$$;
