-- Whether a run called p_run was finished under a lease of p_resource, this one or an earlier one; with p_record it is recorded first.
-- For `pyfence run --once`. Only the holder gets an answer, and keeps the lease while it asks: of two runs with one name the later
-- one sees the record of the earlier. The record is an event of the history, 'finished'.
-- Locks: the lease row FOR KEY SHARE. Codes: as fence.present; LF010 bad argument.
create function fence._finished(p_resource text, p_token bigint, p_secret text, p_run text, p_record boolean) returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_run is null or p_run = '' or octet_length(p_run) > 1024 then
    perform fence._raise('LF010', 'not the name of a run', 'The name of a run has 1 to 1024 bytes.', 'Pass a name such as 2026-11-30.');
  end if;
  perform fence.present(p_resource, p_token, p_secret);
  if p_record then
    perform fence._record('finished', p_resource, p_token, null, jsonb_build_object('run', p_run));
  end if;
  return exists (
    select from fence._history h
    where h.resource = p_resource and h.event = 'finished' and h.detail ->> 'run' = p_run);
end
$$;
