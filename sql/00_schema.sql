-- The one schema of pyfence. Its name is fixed: guards, claims and error fields refer to it.
-- A schema that somebody created beforehand is used as it is.
do $$
begin
  if pg_catalog.to_regnamespace('fence') is null then
    create schema fence;
  end if;
  if pg_catalog.pg_has_role((select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'fence'), 'usage') then
    comment on schema fence is
      'pyfence: leases, fencing tokens and the guards that check them. Names that start with _ are private.';
    revoke all on schema fence from public;
  end if;
end
$$;
