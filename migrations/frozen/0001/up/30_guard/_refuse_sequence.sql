-- LF007 (applied already) or LF008 (no sequence, or one that went backwards), with what was applied last.
create function fence._refuse_sequence(p_code text, p_table oid, p_resource text, p_sequence bigint, p_last fence._accepted) returns void
language plpgsql
stable
as $$
declare
  v_label text := p_table::regclass;
  v_message text;
  v_detail text := pg_catalog.format('The last write to %s under this claim was token %s, sequence %s, at %s.',
    v_label, p_last.token, coalesce(p_last.sequence::text, 'none'), p_last.at);
  v_hint text;
begin
  if fence._is_apply_worker() then
    return;
  end if;
  if p_code = 'LF007' then
    v_message := pg_catalog.format('this write to %L was applied already', p_resource);
    v_hint := case when p_sequence is null
      then pg_catalog.format('Nothing to do for a retry. For another write, take a new token: select * from fence.acquire(%L);', p_resource)
      else pg_catalog.format('Nothing to do for a retry. For another write, present a sequence above %s.', p_last.sequence) end;
  elsif p_sequence is null then
    v_message := pg_catalog.format('a write to %L needs a sequence', p_resource);
    v_detail := pg_catalog.format('%s accepts sequenced writes only.', v_label);
    v_hint := pg_catalog.format('Number the writes: select fence.present(%L, <token>, <secret>, <sequence>);', p_resource);
  else
    v_message := pg_catalog.format('sequence %s of %L went backwards', p_sequence, p_resource);
    v_hint := pg_catalog.format('Present a sequence above %s.', p_last.sequence);
  end if;
  perform fence._raise(p_code, v_message, v_detail, v_hint, p_table);
end
$$;
