-- LF007 (applied already) or LF008 (no sequence, or one that went backwards), with what was applied last.
create function fence._refuse_sequence(p_code text, p_table oid, p_resource text, p_sequence bigint, p_last fence._accepted) returns void
language plpgsql
volatile
as $$
declare
  v_label text := p_table::regclass;
  v_message text;
  v_detail text := pg_catalog.format('The last write to %s under this claim was token %s, sequence %s, at %s.',
    v_label, p_last.token, coalesce(p_last.sequence::text, 'none'), p_last.at);
  v_hint text;
begin
  if fence._passes(p_table, p_code, p_resource) then
    return;
  end if;
  if p_code = 'LF007' then
    v_message := pg_catalog.format('this write to %L was applied already', p_resource);
    v_hint := 'Nothing to do for a retry. For another write, ';
  elsif p_sequence is null then
    v_message := pg_catalog.format('a write to %L needs a sequence', p_resource);
    v_detail := pg_catalog.format('%s accepts sequenced writes only.', v_label);
    v_hint := pg_catalog.format('Number the writes under a token, upwards: select fence.present(%L, <token>, <secret>, <sequence>);', p_resource);
  else
    v_message := pg_catalog.format('sequence %s of %L went backwards', p_sequence, p_resource);
    v_hint := 'If this write is still to be made, ';
  end if;
  if p_last.sequence < 9223372036854775807 and p_sequence is not null then
    v_hint := v_hint || pg_catalog.format('present a higher sequence: select fence.present(%L, <token>, <secret>, %s);',
      p_resource, p_last.sequence + 1);
  elsif p_last.token is not null then
    v_hint := v_hint || pg_catalog.format('give this token back, select fence.release(%1$L, <token>, <secret>); '
      || 'and take a new one: select * from fence.acquire(%1$L);', p_resource);
  end if;
  perform fence._raise(p_code, v_message, v_detail, v_hint, p_table);
end
$$;
