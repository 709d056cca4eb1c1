-- pyfence's own tables: the key that the locking rests on, their guard, and who else has rights on them.
create function fence._audit_own_tables()
returns table (severity text, code text, object text, detail text, remedy text)
language plpgsql
stable
as $$
begin
  return query
    select 'error', 'lease-key', k.relid::regclass::text,
      pg_catalog.format('No plain, valid, immediate unique index is exactly on (%s): takeovers no longer wait for guarded transactions.', k.columns),
      pg_catalog.format('alter table %4$s drop constraint if exists %1$s; drop index if exists fence.%1$s; '
        || 'alter table %4$s add constraint %1$s %2$s (%3$s);', k.name, k.kind, k.columns, k.relid::regclass)
    from (values ('fence._lease'::regclass, '_lease_resource_token_key', 'unique', 'resource, token', array['resource', 'token']),
      ('fence._lease', '_lease_pkey', 'primary key', 'resource', array['resource']),
      ('fence._covering', '_covering_resource_token_key', 'unique', 'resource, token', array['resource', 'token']),
      ('fence._covering', '_covering_pkey', 'primary key', 'resource', array['resource'])) k (relid, name, kind, columns, names)
    where not exists (
      select from pg_catalog.pg_index i
      where i.indrelid = k.relid and i.indisunique and i.indisvalid and i.indisready and i.indimmediate
        and i.indpred is null and i.indexprs is null and i.indnatts = i.indnkeyatts and i.indnkeyatts = pg_catalog.cardinality(k.names)
        and (select pg_catalog.array_agg(a.attname::text order by a.attname) from pg_catalog.pg_attribute a
          where a.attrelid = i.indrelid and a.attnum = any (i.indkey)) = k.names);

  return query
    select 'error', 'own-guard', w.relid::regclass::text,
      pg_catalog.format('Its own trigger %I is missing, altered, or not ENABLE ALWAYS: others than pyfence''s functions can write to it.', w.name),
      pg_catalog.format('drop trigger if exists %1$I on %2$s; create trigger %1$I %3$s; alter table %2$s enable always trigger %1$I;',
        w.name, w.relid::regclass, w.definition)
    from (
      select c.oid as relid, 'own_tables_guard' as name, 62 as type, null::text as condition,
        pg_catalog.format('before insert or update or delete or truncate on %s for each statement execute function fence._own_tables_guard()',
          c.oid::regclass) as definition
      from pg_catalog.pg_class c
      where c.relnamespace = 'fence'::regnamespace and c.relkind = 'r' and c.relname <> 'alembic_version'
      union all
      select r.relid, 'token_only_grows', 17, 'new.token<old.tokenornew.resource<>old.resource',
        pg_catalog.format('after update on %s for each row when (new.token < old.token or new.resource <> old.resource) '
          'execute function fence._own_tables_guard()', r.relid)
      from (values ('fence._lease'::regclass), ('fence._covering'::regclass)) r (relid)) w
    left join pg_catalog.pg_trigger t on t.tgrelid = w.relid and t.tgname = w.name
    where t.oid is null or t.tgtype <> w.type or t.tgenabled <> 'A' or t.tgattr <> ''
      or t.tgfoid is distinct from pg_catalog.to_regprocedure('fence._own_tables_guard()')
      or fence._plain_condition(pg_catalog.substring(pg_catalog.pg_get_triggerdef(t.oid), ' WHEN (.*) EXECUTE FUNCTION ')) is distinct from w.condition;

  return query
    select 'error', 'own-table-unlogged', c.oid::regclass::text, 'It is unlogged: a crash would forget tokens.',
      pg_catalog.format('alter table %s set logged;', c.oid::regclass)
    from pg_catalog.pg_class c
    where c.relnamespace = 'fence'::regnamespace and c.relkind = 'r' and c.relpersistence <> 'p';

  return query
    select 'warning', 'own-table-granted', c.oid::regclass::text,
      pg_catalog.format('%s may %s it directly; roles get their rights from pyfence role add.', g.name, pg_catalog.string_agg(x.privilege_type, ', ' order by x.privilege_type)),
      pg_catalog.format('revoke all on %s from %s;', c.oid::regclass, g.name)
    from pg_catalog.pg_class c
    cross join lateral pg_catalog.aclexplode(c.relacl) x
    cross join lateral (select case x.grantee when 0 then 'public' else x.grantee::regrole::text end as name) g
    where c.relnamespace = 'fence'::regnamespace and c.relkind = 'r' and x.grantee <> c.relowner
    group by c.oid, g.name;
end
$$;
