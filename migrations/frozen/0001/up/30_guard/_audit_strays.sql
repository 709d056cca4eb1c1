-- Triggers that call a guard's function where the guard does not reach: outside its tree (a detached partition, a copy), or of a guard that
-- the registry does not know.
create function fence._audit_strays()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    with trees as materialized (
      select g.id, m.relid
      from fence._guard g
      cross join lateral fence._guarded_table(g) t (relid)
      cross join lateral fence._members(t.relid) m
    ), callers as (
      select t.tgname, t.tgrelid, pg_catalog.substr(p.proname, 8)::integer as id
      from pg_catalog.pg_trigger t join pg_catalog.pg_proc p on p.oid = t.tgfoid
      where p.pronamespace = 'fence'::regnamespace and p.proname ~ '^_guard_[0-9]{1,9}$' and t.tgparentid = 0
    )
    select s.severity, s.code, c.tgrelid::regclass::text, pg_catalog.format(s.detail, c.id),
      case
        when g.id is null then 'Restore the rows of fence._guard, or drop these triggers and protect the table again.'
        when fence._tree_root(c.tgrelid) = c.tgrelid then fence._protect_call(g, c.tgrelid)
        else pg_catalog.string_agg(pg_catalog.format('drop trigger %I on %s;', c.tgname, c.tgrelid::regclass), ' ' order by c.tgname)
      end
    from callers c
    left join fence._guard g on g.id = c.id
    cross join lateral (values
      (g.id is null, 'error', 'guard-unregistered',
        'Its triggers call fence._guard_%s(), of a guard that the registry does not know: its row was not restored, or was deleted.'),
      (g.id is not null, 'warning', 'guard-elsewhere',
        'It has triggers of the guard of another table (they call fence._guard_%s()): a partition that was detached, or a copy.'))
      s (found, severity, code, detail)
    where s.found and not exists (select from trees t where t.id = c.id and t.relid = c.tgrelid)
    group by s.severity, s.code, s.detail, c.tgrelid, c.id, g.id;
end
$$;
