-- The rule for writes under p_writes 'once' (one transaction per token) and 'sequenced' (sequences go up within a token). The claim
-- has been verified. The first guarded statement of a transaction that touches a row of the resource takes its turn; later
-- ones of the same transaction pass. Remembered in a row per guard and resource, so that heartbeats never wait for it.
-- p_touched false: before the first row. Waits for a turn in progress and refuses a repetition, but counts nothing; a row that it has to
-- make for that has token 0, which is nobody's.
-- What passes out of turn, its writer being exempt, is not remembered.
-- Locks: the row of fence._accepted, until the transaction ends: writers of one resource take turns.
-- Codes: LF007 applied already, LF008 no sequence, or one that went backwards; 40001 above READ COMMITTED.
create function fence._accept_once(p_guard integer, p_table oid, p_resource text, p_writes text, p_touched boolean default true) returns void
language plpgsql
volatile
as $$
declare
  v_claim text := fence._claim_on(fence._claims(), p_resource);
  v_token text := pg_catalog.split_part(v_claim, ' ', 1);
  v_number text := pg_catalog.split_part(pg_catalog.split_part(v_claim, E'\n', 1), ' ', 3);
  v_sequence bigint;
  v_last fence._accepted;
begin
  if p_writes = 'sequenced' then
    if v_number ~ '^-?[0-9]{1,19}$' then
      v_sequence := case when v_number::numeric between -9223372036854775808 and 9223372036854775807 then v_number::bigint end;
    end if;
    if v_sequence is null then
      perform fence._refuse_sequence('LF008', p_table, p_resource, null, null);
      return;
    end if;
  end if;
  insert into fence._accepted as a (guard, resource, token, sequence, xact, at)
  values (p_guard, p_resource, case when p_touched then v_token::bigint else 0 end, case when p_touched then v_sequence end,
    pg_catalog.pg_current_xact_id(), pg_catalog.clock_timestamp())
  on conflict (guard, resource) do nothing;
  if found then
    return;
  end if;
  select a.* into v_last from fence._accepted a where a.guard = p_guard and a.resource = p_resource for update;
  if v_last.token = v_token::bigint then
    if v_sequence is not distinct from v_last.sequence and v_last.xact = pg_catalog.pg_current_xact_id() then
      return;
    elsif v_sequence is null or v_sequence = v_last.sequence then
      perform fence._refuse_sequence('LF007', p_table, p_resource, v_sequence, v_last);
      return;
    elsif v_sequence < v_last.sequence then
      perform fence._refuse_sequence('LF008', p_table, p_resource, v_sequence, v_last);
      return;
    end if;
  end if;
  if p_touched then
    update fence._accepted a
    set token = v_token::bigint, sequence = v_sequence, xact = pg_catalog.pg_current_xact_id(), at = pg_catalog.clock_timestamp()
    where a.guard = p_guard and a.resource = p_resource;
  end if;
end
$$;
