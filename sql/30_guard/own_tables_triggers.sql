-- Arms fence._own_tables_guard on every table of the schema, for replica sessions too.
do $$
declare
  v_table text;
begin
  foreach v_table in array array['_authority', '_option', '_lease', '_waiter', '_guard', '_accepted', '_covering', '_history', '_violation', '_exemption', '_allowance', '_function'] loop
    execute pg_catalog.format('create trigger own_tables_guard before insert or update or delete or truncate on fence.%I '
      'for each statement execute function fence._own_tables_guard()', v_table);
    execute pg_catalog.format('alter table fence.%I enable always trigger own_tables_guard', v_table);
  end loop;
end
$$;

-- After the row: what a trigger of somebody else made of it is final there.
create trigger token_only_grows after update on fence._lease
  for each row when (new.token < old.token or new.resource <> old.resource)
  execute function fence._own_tables_guard();
alter table fence._lease enable always trigger token_only_grows;

create trigger token_only_grows after update on fence._covering
  for each row when (new.token < old.token or new.resource <> old.resource)
  execute function fence._own_tables_guard();
alter table fence._covering enable always trigger token_only_grows;
