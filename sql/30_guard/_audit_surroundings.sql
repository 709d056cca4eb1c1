-- What stands around a guard and weakens it: unlogged tables, rules that redirect, triggers of others that run after the guard's last word on a row, or have it
-- look at every row.
create function fence._audit_surroundings(p_guard fence._guard, p_table oid)
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'warning', 'table-unlogged', m.relid::regclass::text, 'It is unlogged: a crash empties it, which no guard sees.',
      pg_catalog.format('alter table %s set logged;', m.relid::regclass)
    from fence._members(p_table) m join pg_catalog.pg_class c on c.oid = m.relid
    where c.relpersistence = 'u';

  return query
    select 'warning', 'rule-instead', m.relid::regclass::text,
      pg_catalog.format('Rule %I does something instead of the write: what that is, is checked only where it writes to a protected table.', r.rulename),
      pg_catalog.format('drop rule %I on %s;', r.rulename, m.relid::regclass)
    from fence._members(p_table) m join pg_catalog.pg_rewrite r on r.ev_class = m.relid
    where r.is_instead and r.ev_type <> '1';

  return query
    select case when t.leave then 'error' else 'warning' end, 'trigger-after-guard', t.relid::regclass::text,
      pg_catalog.format('Trigger %I fires before a row, after the guard''s own: %s.', t.name,
        case when t.leave then 'it can change the resource of a row that leaves its partition' else 'it can change the stamped token' end),
      pg_catalog.format('alter trigger %I on %s rename to %I;', t.name, t.relid::regclass, 'a_' || pg_catalog.ltrim(t.name, '~'))
    from (
      select m.relid, g.tgname::text as name,
        g.tgtype & 16 <> 0 and g.tgname > '~~0_fence_leave' and exists (
          select from pg_catalog.pg_class c where c.oid = p_table and c.relkind = 'p') as leave
      from fence._members(p_table) m join pg_catalog.pg_trigger g on g.tgrelid = m.relid
      where g.tgtype & 3 = 3 and g.tgtype & 20 <> 0 and g.tgfoid is distinct from fence._guard_function(p_guard.id)
        and (g.tgparentid = 0 or g.tgisinternal)  -- a clone in PostgreSQL 14: it keeps its name, and its place, when the trigger is renamed
        and (p_guard.token_column is not null and g.tgname > '~0_fence_stamp' or g.tgname > '~~0_fence_leave')) t
    where t.leave or p_guard.token_column is not null;
end
$$;
