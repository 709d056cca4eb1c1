-- For test databases only: functions by which a test ends a lease's time without waiting for it. Nothing of this is part of pyfence's schema, and
-- the doctor reports a database that has it as an error (test-functions).
-- Installed by whoever may act as the owner of schema fence, which no role of a running application may; and only into a database in
-- which no lease has ever been granted. To take it away: drop schema fence_testing cascade;
do $$
declare
  v_owner name;
begin
  select pg_catalog.pg_get_userbyid(n.nspowner) into v_owner from pg_catalog.pg_namespace n where n.nspname = 'fence';
  if v_owner is null then
    raise exception 'schema fence is not installed' using errcode = 'LF011', hint = 'Run first: pyfence migrate up';
  end if;
  execute pg_catalog.format('set local role %I', v_owner);
  if pg_catalog.to_regnamespace('fence_testing') is null then
    if exists (select from fence._lease) then
      raise exception 'this is no fresh test database: leases have been granted in it'
        using errcode = 'LF010', schema = 'fence',
          detail = 'The functions for tests end anybody''s lease. They belong into databases made for tests, before their first use.',
          hint = 'Make a new database for the tests.';
    end if;
    create schema fence_testing;
  end if;
end
$$;

revoke all on schema fence_testing from public;
comment on schema fence_testing is 'pyfence''s functions for tests. Never in production.';

-- Moves the expiry of a lease into the past, as if its ttl had gone by. False: there is no open lease of that name.
create or replace function fence_testing.expire(p_resource text) returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_lease fence._lease;
begin
  update fence._lease l set expires_at = clock_timestamp() - interval '1 millisecond'
  where l.resource = p_resource and l.secret_hash is not null
  returning l.* into v_lease;
  if not found then
    return false;
  end if;
  perform fence._record('expired by a test', v_lease.resource, v_lease.token, v_lease.owner);
  return true;
end
$$;
revoke all on function fence_testing.expire(text) from public;
comment on function fence_testing.expire(text) is 'Moves the expiry of a lease into the past. For tests.';
