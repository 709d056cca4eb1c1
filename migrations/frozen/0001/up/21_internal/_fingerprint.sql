-- What makes a function the one that was installed: its arguments, its source, and whose rights it runs with.
create function fence._fingerprint(p_function oid) returns text
language sql
stable
as $$
  select pg_catalog.md5(pg_catalog.concat_ws('/', p.pronargs, p.prosecdef, p.prokind, l.lanname, p.prosrc))
  from pg_catalog.pg_proc p join pg_catalog.pg_language l on l.oid = p.prolang
  where p.oid = p_function
$$;
