-- LF004: a write to a guarded table in a transaction that has presented nothing. The hint is what to run, in order.
create function fence._refuse_unclaimed(p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_label text := p_table::regclass;
  v_guard fence._guard := fence._guard_of(p_table);
  v_detail text := pg_catalog.format('The table is guarded: who writes must hold the lease on %L and present it in the same transaction.',
    coalesce(v_guard.template, '?'));
  v_hint text;
begin
  if v_guard.scope = 'table' then
    v_hint := pg_catalog.format('Take the lease: select * from fence.acquire(%1$L); '
      || 'then, in the transaction of the write: select fence.present(%1$L, <token>, <secret>);', fence._table_resource(v_guard));
  else
    v_hint := pg_catalog.format('Ask which resource the row belongs to: select fence.resource_for(%L, <key as jsonb>); '
      || 'take its lease: select * from fence.acquire(<resource>); '
      || 'then, in the transaction of the write: select fence.present(<resource>, <token>, <secret>);', v_label);
  end if;
  if not pg_catalog.has_schema_privilege(session_user, 'fence', 'usage') then
    v_hint := pg_catalog.format('Have an administrator run: pyfence role add %I --as client; then go on. ', session_user) || v_hint;
  end if;
  perform fence._raise('LF004', pg_catalog.format('write to %s without a claim', v_label), v_detail, v_hint, p_table);
end
$$;
