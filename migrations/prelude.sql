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
begin
  perform pg_catalog.pg_advisory_xact_lock(31658678086951781);
  if pg_catalog.to_regnamespace('fence') is null then
    create schema fence;
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
end
$pyfence$;
