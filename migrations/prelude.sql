-- The first thing any migration does, online and in a script.
-- The lock (a constant: "pyfence" in ASCII) is the transaction's own: it queues concurrent migrations, ends with the
-- transaction however that ends, and cannot be stranded on another backend by a pooler. Each statement of the block reads
-- the catalog anew, so whoever waited sees what the winner committed.
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
set local quote_all_identifiers = off;
do $pyfence$
declare
  v_owner name;
  v_role text;
begin
  perform pg_catalog.pg_advisory_xact_lock(31658678086951781);
  if pg_catalog.to_regnamespace('fence') is null then
    create schema fence;
    for v_role in  -- what default privileges gave away
      select case x.grantee when 0 then 'public' else x.grantee::pg_catalog.regrole::pg_catalog.text end
      from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) x
      where n.nspname = 'fence' and x.grantee <> n.nspowner
    loop
      execute pg_catalog.format('revoke all on schema fence from %s', v_role);
    end loop;
  end if;
  -- Whose installation is it? The version table's owner's; before there is one, the schema's owner's, unless that is a
  -- superuser, who may have made the schema for somebody else.
  select coalesce(
    (select pg_catalog.pg_get_userbyid(c.relowner)
     from pg_catalog.pg_class c where c.oid = pg_catalog.to_regclass('fence.alembic_version')),
    (select r.rolname
     from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner
     where n.nspname = 'fence' and not r.rolsuper),
    current_user
  ) into v_owner;
  if v_owner <> current_user then
    raise exception 'schema fence belongs to role %, and this session acts as %', v_owner, current_user
      using errcode = 'insufficient_privilege',
            schema = 'fence',
            detail = 'Everything in the schema must have one owner: its functions run with that owner''s rights.',
            hint = pg_catalog.format('Connect as that role, or run first: set role %I', v_owner);
  end if;
  -- Somebody's own schema of that name. What looks like pyfence without a version is told apart later: stamp it.
  if pg_catalog.to_regclass('fence.alembic_version') is null and pg_catalog.to_regclass('fence._lease') is null
    and (exists (select from pg_catalog.pg_class c where c.relnamespace = pg_catalog.to_regnamespace('fence'))
      or exists (select from pg_catalog.pg_proc p where p.pronamespace = pg_catalog.to_regnamespace('fence'))
      or exists (select from pg_catalog.pg_type t where t.typnamespace = pg_catalog.to_regnamespace('fence')))
  then
    raise exception 'there is a schema fence, and it is not pyfence''s'
      using errcode = 'LF011',
            schema = 'fence',
            detail = 'It holds objects, and none of pyfence''s. The name of pyfence''s schema cannot be chosen.',
            hint = 'Rename yours (alter schema fence rename to ...), or use another database.';
  end if;
end
$pyfence$;
