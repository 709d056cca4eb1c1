-- 42501 where fence.allow keeps the session's role from a name, 53400 where it holds as many leases as it may. The rules that count are those of
-- session_user and of every role that it is a member of; a superuser is bound by its own alone. LF010 under a rule with a number above READ COMMITTED.
-- Locks: the rules with a limit that the name falls under, FOR NO KEY UPDATE: two cannot take the last lease at once; for a moment only, the role's
-- expired leases under them FOR SHARE SKIP LOCKED.
create function fence._check_allowance(p_resource text) returns void
language plpgsql
volatile
as $$
declare
  v_names text;
  v_rule record;
  v_found boolean := false;
  v_over text[];
begin
  if not exists (select from fence._allowance) then
    return;
  end if;
  for v_rule in
    select a.role, a.pattern, a.expression, a.max_leases
    from fence._allowance a join pg_catalog.pg_roles r on r.rolname = a.role
    where a.role = session_user
      or pg_catalog.pg_has_role(session_user, r.oid, 'member') and not (select s.rolsuper from pg_catalog.pg_roles s where s.rolname = session_user)
    order by a.role, a.pattern
  loop
    v_names := pg_catalog.concat_ws(', ', v_names, v_rule.pattern);
    if p_resource !~ v_rule.expression then
      continue;
    end if;
    v_found := true;
    continue when v_rule.max_leases is null;
    perform fence._read_committed_only(pg_catalog.format('a lease under a rule with a number (%L) is granted', v_rule.pattern),
      'Leases that were granted after the snapshot would not be counted.');
    select a.max_leases into v_rule.max_leases
    from fence._allowance a where a.role = v_rule.role and a.pattern = v_rule.pattern for no key update;
    if not found then  -- the rule has been taken away meanwhile
      perform fence._check_allowance(p_resource);
      return;
    end if;
    begin
      v_over := array(  -- one that is being renewed is not over; one that is over once stays so, and needs no lock any more
        select l.resource from fence._lease l
        where l.granted_to = session_user and l.secret_hash is not null and l.expires_at <= pg_catalog.clock_timestamp()
          and l.resource ~ v_rule.expression and l.resource <> p_resource
        for share skip locked);
      raise no_data_found;
    exception when no_data_found then
      null;
    end;
    if v_rule.max_leases <= (
      select pg_catalog.count(*) from fence._lease l
      where l.granted_to = session_user and l.secret_hash is not null and fence._is_entered(l.entered)
        and l.lineage = (select p.lineage from fence._present_lineage p)  -- none: the grant begins another one, or is refused
        and l.resource ~ v_rule.expression and l.resource <> p_resource and l.resource <> all (v_over))
    then
      perform fence._raise('53400', pg_catalog.format('%I holds as many leases as it may', session_user),
        pg_catalog.format('It may hold %s under %L at a time.', v_rule.max_leases, v_rule.pattern),
        'Release one, or have an administrator allow more: select fence.allow(<role>, <pattern>, <number>);');
    end if;
  end loop;
  if v_names is not null and not v_found then
    perform fence._raise('42501', pg_catalog.format('%I may not acquire %L', session_user, p_resource),
      pg_catalog.format('It may acquire %s.', v_names),
      pg_catalog.format('Have an administrator allow it: select fence.allow(%L, %L);', pg_catalog.quote_ident(session_user), p_resource));
  end if;
end
$$;
