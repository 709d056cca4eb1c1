-- LF013: the session has a temporary relation that is called as a guard's transition table is, and could stand in for it.
create function fence._refuse_shadow(p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_relation record;
begin
  select c.relname, case c.relkind when 'v' then 'view' when 'S' then 'sequence' when 'i' then 'index' when 'c' then 'type' else 'table' end as kind
  into v_relation
  from pg_catalog.pg_class c
  where c.oid in (pg_catalog.to_regclass('pg_temp.fence_rows'), pg_catalog.to_regclass('pg_temp.fence_old_rows'))
  limit 1;
  perform fence._raise('LF013', pg_catalog.format('the guard on %s cannot run in this session', p_table::regclass),
    pg_catalog.format('A temporary relation called %s hides the rows that the guard has to see.', v_relation.relname),
    pg_catalog.format('drop %s pg_temp.%s;', v_relation.kind, v_relation.relname), p_table);
end
$$;
