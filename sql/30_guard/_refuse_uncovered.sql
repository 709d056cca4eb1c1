-- LF005: a write touches a row of a resource that no claim of the transaction covers; a null resource is a null key.
create function fence._refuse_uncovered(p_table oid, p_resource text) returns void
language plpgsql
stable
as $$
declare
  v_label text := p_table::regclass;
  v_message text;
  v_detail text;
  v_hint text;
begin
  if p_resource is null then
    v_message := pg_catalog.format('a row of %s belongs to no resource', v_label);
    v_detail := 'A column of its key is null.';
    v_hint := pg_catalog.format('Give every key column of the row a value; the template of %s in fence.protected_tables names them.', v_label);
  else
    v_message := pg_catalog.format('no claim on %L', p_resource);
    v_detail := pg_catalog.format('The write touches a row of %s that belongs to %L; this transaction has presented no claim on it.',
      v_label, p_resource);
    v_hint := pg_catalog.format('Take the lease: select * from fence.acquire(%1$L); '
      || 'then, in the transaction of the write and before it: select fence.present(%1$L, <token>, <secret>);', p_resource);
  end if;
  perform fence._raise('LF005', v_message, v_detail, v_hint, p_table);
end
$$;
