-- fence._check_claims one resource at a time, in name order, where the set-wise look did not accept: raises for the first
-- resource that is not covered, in words. Returns if each is (a renewal may have come in between).
-- LF004 no claim in this transaction, LF005 a row that no claim covers (or a null key), LF001 / LF002 / LF006 as in
-- fence._verdict; 40001 where an older snapshot cannot decide.
create function fence._check_each_claim(p_table oid, p_names text[], p_expiry text) returns void
language plpgsql
volatile
as $$
declare
  v_label text := p_table::regclass;
  v_lease fence._lease;
  v_name text;
  v_code text;
  v_claim record;
  v_message text;
  v_detail text;
  v_hint text;
begin
  if not exists (select from fence._claims()) then
    perform fence._refuse_unclaimed(p_table);
  end if;
  for v_name in select n.name from pg_catalog.unnest(p_names) n (name) order by n.name nulls first loop
    if v_name is null then
      v_message := pg_catalog.format('a row of %s belongs to no resource', v_label);
      v_hint := pg_catalog.format('Give every key column of the row a value; they stand in the template of %s in fence.protected_tables.', v_label);
      perform fence._raise('LF005', v_message, 'A column of its key is null.', v_hint, p_table);
    end if;
    select c.token, c.secret into v_claim from fence._claims() c where c.resource_hex = fence._hex(v_name);
    if not found then
      v_message := pg_catalog.format('no claim on %L', v_name);
      v_detail := pg_catalog.format('The write touches a row of %s that belongs to %L; this transaction has not presented a claim on it.',
        v_label, v_name);
      v_hint := pg_catalog.format('Acquire %1$L and present it in this transaction, before the write: '
        || 'select fence.present(%1$L, <token>, <secret>);', v_name);
      perform fence._raise('LF005', v_message, v_detail, v_hint, p_table);
    end if;
    select l.* into v_lease from fence._lease l where l.resource = v_name for key share;
    if not found then
      perform fence._refuse_unknown(v_name, p_table);
    end if;
    v_code := fence._verdict(v_lease, (select a.lineage from fence._authority a), v_claim.token, v_claim.secret);
    if v_code is not null then
      perform fence._refuse_claim(v_code, v_lease, v_claim.token, p_table);
    end if;
    if p_expiry <> 'until_superseded' and v_lease.expires_at <= pg_catalog.clock_timestamp() then
      perform fence._refuse_expired(v_lease, p_table);
    end if;
  end loop;
end
$$;
