-- LF004: a write to a guarded table in a transaction that has presented nothing.
create function fence._refuse_unclaimed(p_table oid) returns void
language plpgsql
stable
as $$
declare
  v_label text := p_table::regclass;
  v_guard fence._guard := fence._guard_of(p_table);
begin
  perform fence._raise('LF004', pg_catalog.format('write to %s without a claim', v_label),
    pg_catalog.format('The table is guarded: who writes must hold the lease on %L and present it in the same transaction.',
      coalesce(v_guard.template, '?')),
    case
      when v_guard.scope = 'table' then pg_catalog.format(
        'Acquire %1$L, then in the transaction of the write: select fence.present(%1$L, <token>, <secret>);',
        fence.resource_name(v_guard.template, pg_catalog.jsonb_build_object('@schema', v_guard.template_schema, '@table', v_guard.template_table)))
      else pg_catalog.format('Acquire the row''s resource, select fence.resource_for(%L, <key as jsonb>), then in the transaction '
        || 'of the write: select fence.present(<resource>, <token>, <secret>);', v_label)
    end, p_table);
end
$$;
