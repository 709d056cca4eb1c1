-- The equality operator of an operator class, qualified: operator(schema.=).
create function fence._equality(p_opclass oid) returns text
language plpgsql
stable
as $$
declare
  v_class pg_catalog.pg_opclass;
begin
  select c.* into v_class from pg_catalog.pg_opclass c where c.oid = p_opclass;
  if v_class.opcnamespace = 'pg_catalog'::regnamespace then
    return 'operator(pg_catalog.=)';
  end if;
  return (
    select pg_catalog.format('operator(%I.%s)', n.nspname, o.oprname)
    from pg_catalog.pg_amop m
    join pg_catalog.pg_operator o on o.oid = m.amopopr
    join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
    where m.amopfamily = v_class.opcfamily and m.amoplefttype = v_class.opcintype and m.amoprighttype = v_class.opcintype
      and m.amopstrategy = 3
  );
end
$$;
