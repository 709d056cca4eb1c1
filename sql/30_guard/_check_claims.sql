-- The guard: passes if this transaction holds, for every resource in p_names, the newest token; raises if not.
-- One query locks the lease of every claim that covers a touched row, in name order, and only then compares, and only then
-- looks at the clock: the comparison stands in an aggregate's filter above the lock, where the planner cannot move it below.
-- Locks: the lease rows FOR KEY SHARE, until the transaction ends (fence.present has locked them before).
create function fence._check_claims(p_table oid, p_names text[], p_expiry text) returns void
language plpgsql
volatile
as $$
declare
  v_accepted bigint;
begin
  select pg_catalog.count(*) filter (
      where fence._verdict(s.lease, s.authority_lineage, s.token, s.secret) is null
        and (p_expiry = 'until_superseded' or (s.lease).expires_at > pg_catalog.clock_timestamp()))
  into v_accepted
  from (
    select l as lease, a.lineage as authority_lineage, c.token, c.secret
    from pg_catalog.unnest(p_names) n (name)
    join fence._claims() c on c.resource_hex = fence._hex(n.name)
    join fence._lease l on l.resource = n.name
    cross join fence._authority a
    order by l.resource
    for key share of l
  ) s;
  if v_accepted is distinct from pg_catalog.cardinality(p_names) then
    perform fence._check_each_claim(p_table, p_names, p_expiry);
  end if;
end
$$;
