-- Every hole in the fence that leaves a trace in this database, one row a finding, errors first: what is wrong with the guards, with pyfence's
-- own objects, with rights, and which transactions hold a lease and do not move. A remedy that ends with a semicolon is SQL, to be run as
-- it stands by whoever may; any other is a sentence. A guard that cannot be read is a finding, never a failure.
-- Runs as the caller, and the rest as the schema's owner behind it. Of the sessions the caller sees what PostgreSQL
-- shows it (pg_read_all_stats: everything), of other version tables those that it may read. Locks: none beyond the catalog's. Codes: none.
create function fence.audit()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $$
begin
  return query
    select f.severity, f.code, f.object, f.detail, f.remedy
    from (
      select a.* from fence._audit() a
      union all select s.* from fence._audit_sessions(interval '10 seconds') s
      union all select m.* from fence._audit_migrations() m) f
    order by array_position(array['error', 'warning', 'info'], f.severity), f.code, f.object, f.detail;
end
$$;

comment on function fence.audit() is
  'Every hole in the fence that leaves a trace: severity (error, warning, info), code, object, detail, remedy. Changes nothing.';
