-- Forgets events of the history, violations and ended exemptions that are older than p_older_than; never a token, a lease or a count of writes.
-- Returns how many rows went. For administrators. Locks: the rows that go; an
-- exemption that an open transaction has used stays for the next time. Codes: LF010 bad argument.
create function fence.prune(p_older_than interval) returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := clock_timestamp() - p_older_than;
  v_count bigint;
begin
  if v_before is null or v_before > clock_timestamp() then
    perform fence._raise('LF010', 'prune needs an age', format('The age is %s.', coalesce(p_older_than::text, 'null')),
      'Pass an interval that is not negative: select fence.prune(interval ''90 days'');');
  end if;
  with history as (
    delete from fence._history h where h.at < v_before returning 1
  ), violations as (
    delete from fence._violation v where v.at < v_before returning 1
  ), exemptions as (
    delete from fence._exemption e
    where (e.guard, e.role) in (select x.guard, x.role from fence._exemption x where x.until < v_before for update skip locked)
    returning 1
  )
  select (select count(*) from history) + (select count(*) from violations) + (select count(*) from exemptions) into v_count;
  return v_count;
end
$$;

comment on function fence.prune(interval) is 'Forgets history and violations older than an interval; never tokens. Returns how many rows went. LF010.';
