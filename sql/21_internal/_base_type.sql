-- The type under a domain (under its domains).
create function fence._base_type(p_type oid) returns oid
language sql
stable
as $$
  with recursive base (type, base) as (
    select t.oid, case when t.typtype = 'd' then t.typbasetype end from pg_catalog.pg_type t where t.oid = p_type
    union all
    select t.oid, case when t.typtype = 'd' then t.typbasetype end
    from base b join pg_catalog.pg_type t on t.oid = b.base
  )
  select b.type from base b where b.base is null
$$;
