-- 42501 unless the session may act as the table's owner. For definer functions, in which current_user says nothing.
create function fence._check_owner(p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_owner name := (select pg_catalog.pg_get_userbyid(c.relowner) from pg_catalog.pg_class c where c.oid = p_table);
begin
  if not pg_catalog.pg_has_role(session_user, v_owner, 'member') then
    perform fence._raise('42501', pg_catalog.format('must be able to act as the owner of %s', p_table::regclass),
      pg_catalog.format('The table belongs to %I; the session is %I.', v_owner, session_user),
      pg_catalog.format('Connect as %I, or as a role that is a member of it.', v_owner), p_table);
  end if;
end
$$;
