-- The guard of pyfence's own tables: only its definer functions write them. pg_write_all_data, and a superuser who is not the
-- schema's owner, are refused with 42501; lease rows are never deleted and a token never goes down, whoever asks. A logical replication worker passes.
create function fence._own_tables_guard() returns trigger
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_level = 'STATEMENT' and not (tg_relid = 'fence._lease'::regclass and tg_op in ('DELETE', 'TRUNCATE'))
    and current_user = (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = tg_relid)
  then
    return null;
  elsif fence._is_apply_worker() then
    return null;
  elsif tg_level = 'ROW' then
    perform fence._raise('42501', 'a token never goes down', format('Token %s of %L cannot become %s.', old.token, old.resource, new.token),
      'Change leases through acquire, renew, release and revoke only.', tg_relid);
  elsif tg_relid = 'fence._lease'::regclass and tg_op in ('DELETE', 'TRUNCATE') then
    perform fence._raise('42501', 'leases are never deleted', 'A deleted lease would forget its tokens.',
      'End a lease instead: select fence.revoke(<resource>, <reason>);', tg_relid);
  end if;
  perform fence._raise('42501', format('%s is written by pyfence''s functions only', tg_relid::regclass),
    format('The role is %I.', current_user), 'Call the functions of schema fence.', tg_relid);
end
$$;
