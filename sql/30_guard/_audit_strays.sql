-- Triggers that call a guard's function where the guard does not reach: outside its tree (a detached partition or branch, a copy), or of a guard
-- that the registry does not know. What stands under another table of that kind is said with it, and mended with it.
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
    ), callers as materialized (
      select t.tgrelid, pg_catalog.substr(p.proname, 8)::integer as id, fence._tree_root(t.tgrelid) as root,
        pg_catalog.string_agg(pg_catalog.format('drop trigger %I on %s;', t.tgname, t.tgrelid::regclass), ' ' order by t.tgname) as dropping
      from pg_catalog.pg_trigger t join pg_catalog.pg_proc p on p.oid = t.tgfoid
      where p.pronamespace = 'fence'::regnamespace and p.proname ~ '^_guard_[0-9]{1,9}$' and t.tgparentid = 0
      group by t.tgrelid, p.proname
    )
    select s.severity, s.code, c.tgrelid::regclass::text, pg_catalog.format(s.detail, c.id, l.names),
      case
        when g.id is null then 'Restore the rows of fence._guard, or drop these triggers and protect the table again.'
        when l.names is not null then fence._protect_call(g, c.tgrelid)
        else c.dropping
      end
    from callers c
    left join fence._guard g on g.id = c.id
    cross join lateral (select case when g.id is not null and c.root = c.tgrelid then fence._audit_lost_row_triggers(g, c.tgrelid) end) l (names)
    cross join lateral (values
      (g.id is null, 'error', 'guard-unregistered',
        'Its triggers call fence._guard_%1$s(), of a guard that the registry does not know: its row was not restored, or was deleted.'),
      (l.names <> '', 'error', 'guard-partial',
        'It was detached from a protected tree: the triggers for statements stayed (they call fence._guard_%1$s()), and those for rows that '
          || 'came from the tree are gone: %2$s.'),
      (g.id is not null and coalesce(l.names, '') = '', 'warning', 'guard-elsewhere',
        'It has triggers of the guard of another table (they call fence._guard_%1$s()): a partition that was detached, or a copy.'))
      s (found, severity, code, detail)
    where s.found
      and not exists (select from trees t where t.id = c.id and t.relid = c.tgrelid)
      and (g.id is null or not exists (select from callers o where o.id = c.id and o.tgrelid = c.root and c.root <> c.tgrelid));
end
$$;
