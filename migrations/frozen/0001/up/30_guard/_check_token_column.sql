-- LF010 unless a guard's token column is one that the guard can stamp: a bigint, not generated, no part of the key
-- or of a partition key; and no key
-- column is generated, whose value is not there yet when a row is stamped.
create function fence._check_token_column(p_guard fence._guard, p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_problem text;
begin
  if p_guard.token_column is null then
    return;
  end if;
  select case
      when a.attname is null then 'there is no such column'
      when a.atttypid <> 'int8'::regtype then 'it is not a bigint'
      when a.attgenerated <> '' or a.attidentity <> '' then 'it is generated'
      when exists (select from fence._key_columns(p_table, p_guard.template) k where k.attname = p_guard.token_column) then 'it is part of the key'
      when exists (select from fence._partition_columns(p_table) q where q.attname = p_guard.token_column) then 'it decides the partition of a row'
      when exists (
        select from fence._key_columns(p_table, p_guard.template) k
        join pg_catalog.pg_attribute g on g.attrelid = p_table and g.attname = k.attname
        where g.attgenerated <> '') then 'a column of the key is generated: its value is computed after the row is stamped'
    end
  into v_problem
  from (select p_guard.token_column as name) n
  left join pg_catalog.pg_attribute a on a.attrelid = p_table and a.attname = n.name and a.attnum > 0 and not a.attisdropped;
  if v_problem is not null then
    perform fence._raise('LF010', pg_catalog.format('%I cannot be the token column of %s', p_guard.token_column, p_table::regclass),
      pg_catalog.format('The reason: %s.', v_problem),
      case when v_problem like 'a column of the key%' then 'Name key columns that are not generated, or leave the token column out.'
        else pg_catalog.format('Add one: alter table %s add column fence_token bigint; and name it: p_token_column => ''fence_token''.',
          p_table::regclass) end, p_table);
  end if;
end
$$;
